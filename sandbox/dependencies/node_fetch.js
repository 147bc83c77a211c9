// The fetch of npm packages: a guest with a way out to the registry, which runs npm's own code and no other.
// It reads packages.json (from a lock file) or projects.json (what the project asks for), both written by the host from
// parsed data, and leaves one archive for each place in archives/. The name of an archive is its place, see
// sandbox/dependencies/node_tree.py. No package is unpacked, and no script of a package runs.
'use strict'
const fs = require('fs')
const path = require('path')
const { spawnSync } = require('child_process')
const { createRequire } = require('module')

const asOf = process.argv[2]
const npm = fs.realpathSync(spawnSync('sh', ['-c', 'command -v npm'], { encoding: 'utf8' }).stdout.trim())
const pacote = createRequire(npm)('pacote')
const registry = process.env.npm_config_registry.replace(/\/*$/, '/')
const settings = {
  registry,
  ca: fs.readFileSync(process.env.npm_config_cafile, 'utf8').split(/(?<=-----END CERTIFICATE-----)/),
  cache: path.resolve('cache'),
  ignoreScripts: true,
  fetchRetries: 2,
  timeout: 60000,
  userAgent: 'npm'
}
const JOBS = 8
const NETWORK = 69 // no registry: asking for less would not help
const NOT_THERE = new Set(['E404', 'ETARGET', 'ENOVERSIONS'])

const readJson = name => JSON.parse(fs.readFileSync(name, 'utf8'))
const say = text => process.stderr.write(`${text}\n`)

function fits (words, own) {
  if (!words || words.length === 0) return true
  if (words.includes(`!${own}`)) return false
  const wanted = words.filter(word => !word.startsWith('!'))
  return wanted.length === 0 || wanted.includes(own) || wanted.includes('any')
}

const isForThisSystem = one => fits(one.os, process.platform) && fits(one.cpu, process.arch) && fits(one.libc, 'glibc')

async function fetchArchive (one) {
  const spec = `${one.name}@${one.version}`
  const usual = `${registry}${one.name}/-/${one.name.split('/').pop()}-${one.version}.tgz`
  const target = path.resolve('archives', one.file)
  try {
    await pacote.tarball.file(spec, target, { ...settings, resolved: usual, integrity: one.integrity })
  } catch (error) {
    if (!NOT_THERE.has(error.code)) throw error
    await pacote.tarball.file(spec, target, { ...settings, integrity: one.integrity }) // where the registry says
  }
}

async function fetchAll (packages) {
  const byVersion = new Map()
  for (const one of packages.filter(isForThisSystem)) {
    const key = `${one.name}@${one.version}`
    byVersion.set(key, [...(byVersion.get(key) || []), one])
  }
  const waiting = [...byVersion.values()]
  const work = async () => {
    for (let same = waiting.shift(); same; same = waiting.shift()) {
      try {
        await fetchArchive(same[0])
      } catch (error) {
        if (same.some(one => !one.optional) || !NOT_THERE.has(error.code)) throw error
        say(`left out, optional: ${same[0].name}@${same[0].version}: ${error.code}`)
        continue
      }
      for (const other of same.slice(1)) fs.copyFileSync(`archives/${same[0].file}`, `archives/${other.file}`)
    }
  }
  await Promise.all(Array.from({ length: JOBS }, work))
}

// The places of a package-lock.json that npm has just written.
function listPackages (lock) {
  const found = []
  for (const [place, entry] of Object.entries(lock.packages)) {
    const [base, ...names] = `/${place}`.split('/node_modules/')
    if (names.length === 0 || entry.link || entry.inBundle) continue
    const name = entry.name || names[names.length - 1]
    const start = base ? `${base.slice(1).replace(/\//g, '+')}:` : ''
    const alias = name === names[names.length - 1] ? '' : `=${name}`
    found.push({
      ...entry,
      name,
      optional: entry.optional || entry.devOptional,
      file: `${start}${names.join(',')}${alias}@${entry.version}.tgz`.replace(/\//g, '+')
    })
  }
  return found
}

function resolve (projects, options, groups) {
  fs.rmSync('project', { recursive: true, force: true })
  for (const [folder, declared] of Object.entries(projects)) {
    const kept = groups ? Object.fromEntries(groups.map(group => [group, declared[group]])) : declared
    const written = { name: folder.replace(/\W/g, '-') || 'project', version: '0.0.0', ...kept }
    if (folder === '') written.workspaces = Object.keys(projects).filter(name => name !== '')
    fs.mkdirSync(path.join('project', folder), { recursive: true })
    fs.writeFileSync(path.join('project', folder, 'package.json'), JSON.stringify(written))
  }
  const words = ['install', '--package-lock-only', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error']
  const done = spawnSync('npm', [...words, `--cache=${settings.cache}`, ...options], { cwd: 'project', encoding: 'utf8' })
  if (done.status === 0) return listPackages(readJson('project/package-lock.json'))
  say(done.stderr.slice(-4000))
  if (/code (?:ECONN|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|ERR_SOCKET|E5\d\d|CERT|SELF_SIGNED|UNABLE_TO)/.test(done.stderr)) process.exit(NETWORK)
  return null
}

async function main () {
  fs.mkdirSync('archives')
  const locked = readJson('packages.json')
  if (locked.length > 0) {
    try {
      await fetchAll(locked)
      return 'all, as locked'
    } catch (error) {
      if (!NOT_THERE.has(error.code)) throw error
      say(`${error.message}\nthe lock file names versions that the registry lacks: it is not used`)
      fs.rmSync('archives', { recursive: true })
      fs.mkdirSync('archives')
    }
  }
  const before = `--before=${asOf}`
  const runtime = ['dependencies', 'optionalDependencies', 'peerDependencies']
  for (const [name, options, groups] of [
    [`all, as of ${asOf}`, [before]],
    [`all, as of ${asOf}, whatever their peers`, [before, '--legacy-peer-deps']],
    ['all', ['--legacy-peer-deps']],
    [`runtime, as of ${asOf}`, [before, '--legacy-peer-deps'], runtime],
    ['runtime', ['--legacy-peer-deps'], runtime]
  ]) {
    const packages = resolve(readJson('projects.json'), options, groups)
    if (packages === null) continue
    await fetchAll(packages)
    return name
  }
  throw new Error('no versions fit together')
}

main().then(
  name => fs.writeFileSync('selection.txt', `${name}\n`),
  error => {
    say(error.stack || String(error))
    process.exit(65)
  }
)
