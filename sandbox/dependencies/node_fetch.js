// The fetch of npm packages: a guest with a way out to the registry, which runs npm's own code and no other.
// It reads packages.json (from a lock file) or projects.json (what the project asks for), both written by the host from
// parsed data, and leaves one archive for each place in archives/. The name of an archive is its place, see
// sandbox/dependencies/node_tree.py. No script of a package runs, and npm unpacks only those that bundle others, into
// its cache.
'use strict'
const fs = require('fs')
const path = require('path')
const net = require('net')
const { spawn, spawnSync } = require('child_process') // taken before they are replaced
require('./node_no_programs.js')
require('./node_certificates.js')
const { createRequire } = require('module')

const asOf = process.argv[2]
const npm = fs.realpathSync(spawnSync('sh', ['-c', 'command -v npm'], { encoding: 'utf8' }).stdout.trim())
const npa = createRequire(npm)('npm-package-arg')
const pacote = createRequire(npm)('pacote')
const semver = createRequire(npm)('semver')
const registry = process.env.npm_config_registry.replace(/\/*$/, '/')
const settings = {
  registry,
  ca: fs.readFileSync(process.env.npm_config_cafile, 'utf8').split(/(?<=-----END CERTIFICATE-----)/),
  cache: path.resolve('cache'),
  ignoreScripts: true,
  preferOffline: true, // of this fetch's own cache: a further attempt does not ask for the same documents again
  fetchRetries: 4,
  fetchRetryMintimeout: 500, // npm waits 10 s, then 60 s
  fetchRetryMaxtimeout: 4000,
  timeout: 60000,
  userAgent: 'npm'
}
const JOBS = 8
const CONNECTIONS = 12 // the proxy of the host allows 64 at the same time; npm behind a proxy has no limit of its own
const NOT_THERE = new Set(['E404', 'ETARGET', 'ENOVERSIONS'])
const UNFIT = new Set([...NOT_THERE, 'ERESOLVE', 'EINVALIDTAGNAME', 'EUNSUPPORTEDPROTOCOL'])
const NOT_GIVEN = new Set([...NOT_THERE, 'E401', 'E403', 'E451']) // a mirror may allow some packages only
const WANTS_LOGIN = new Set(['EOTP', 'EAUTHIP'])
const SHOWN_PEERS = 8
const RANGE_CHARS = 256 // of what packages say of Node.js; a longer range can take minutes to compare
const NO_ANSWER = /^(?:ECONN[A-Z]+|E[A-Z]*TIMEOUT|ETIMEDOUT|ENOTFOUND|EAI_[A-Z]+|EPIPE|E(?:HOST|NET)UNREACH|ERR_SOCKET_TIMEOUT)$/

const readJson = name => JSON.parse(fs.readFileSync(name, 'utf8'))
const say = text => process.stderr.write(`${text}\n`)

function fits (listed, own) {
  if (!listed || listed.length === 0) return true
  const words = [listed].flat() // some packages have one word, and no list
  if (words.includes(`!${own}`)) return false
  const wanted = words.filter(word => !word.startsWith('!'))
  return wanted.length === 0 || wanted.includes(own) || wanted.includes('any')
}

const isForThisSystem = one => fits(one.os, process.platform) && fits(one.cpu, process.arch) && fits(one.libc, 'glibc')

// Names and versions are the registry's words, and pacote takes some for a repository, a folder or an address.
function requireSpec (one) {
  const spec = npa.resolve(one.name, one.version)
  if (spec.type !== 'version') throw new Error(`no name and version of a package: ${spec.raw.slice(0, 200)}`)
  return spec
}

// What the registry said instead of a package, for the host to tell: the number of HTTP, 0 for no answer, and the package.
// A 404 is no such answer.
function noteAnswer ({ code = '', statusCode, uri }) {
  const status = statusCode || Number((/^E([45]\d\d)$/.exec(code) || [])[1]) || (WANTS_LOGIN.has(code) ? 401 : 0)
  if (status === 404 || (status === 0 && !NO_ANSWER.test(code))) return
  const place = (uri || '').startsWith(registry) ? uri.slice(registry.length).split('/-/')[0] : ''
  fs.writeFileSync('answer.txt', `${status} ${place.replace(/%2f/i, '/')}\n`)
}

async function fetchArchive (one) {
  const spec = requireSpec(one)
  const usual = `${registry}${one.name}/-/${one.name.split('/').pop()}-${one.version}.tgz`
  const target = path.resolve('archives', one.file)
  try {
    await pacote.tarball.file(usual, target, { ...settings, integrity: one.integrity })
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
      engines: entry.engines || {},
      optional: entry.optional || entry.devOptional,
      file: `${start}${names.join(',')}${alias}@${entry.version}.tgz`.replace(/\//g, '+')
    })
  }
  return found
}

// A way to the proxy that lets the connections of npm wait for each other. Returns its URL.
function startQueue () {
  const proxy = new URL(process.env.HTTPS_PROXY)
  const waiting = []
  let open = 0
  const next = () => {
    while (open < CONNECTIONS && waiting.length > 0) {
      const client = waiting.shift()
      open += 1
      const server = net.connect({ host: proxy.hostname, port: proxy.port, allowHalfOpen: true })
      const end = () => {
        client.destroy()
        server.destroy()
      }
      server.once('close', () => {
        open -= 1
        next()
      })
      client.once('close', end).once('error', end)
      server.once('error', end)
      client.pipe(server).pipe(client)
    }
  }
  const queue = net.createServer({ allowHalfOpen: true, pauseOnConnect: true }, client => {
    waiting.push(client)
    next()
  })
  return new Promise(resolve => {
    queue.listen(0, '127.0.0.1', () => {
      queue.unref()
      resolve(`http://127.0.0.1:${queue.address().port}`)
    })
  })
}

function runNpm (words, env) {
  return new Promise(resolve => {
    const before = ['./node_no_programs.js', './node_certificates.js'].flatMap(name => ['--require', require.resolve(name)])
    const argv = [...before, npm, ...words]
    const child = spawn(process.execPath, argv, { cwd: 'project', env, stdio: ['ignore', 'ignore', 'pipe'] })
    let seen = ''
    let isWhole = true
    child.stderr.on('data', piece => {
      seen += piece
      isWhole = isWhole && seen.length <= 4000
      seen = seen.slice(-4000)
    })
    child.on('close', status => resolve({ status, seen: isWhole ? seen : seen.slice(seen.indexOf('\n') + 1) }))
  })
}

// `keepsLock`: npm keeps the versions of the last attempt, and adds what they lack.
async function resolve (projects, { options, keepsLock = false }, groups) {
  if (!keepsLock) fs.rmSync('project', { recursive: true, force: true })
  for (const [folder, declared] of Object.entries(projects)) {
    const kept = groups ? Object.fromEntries(groups.map(group => [group, declared[group]])) : declared
    const written = { name: folder.replace(/\W/g, '-') || 'project', version: '0.0.0', ...kept }
    if (folder === '') written.workspaces = Object.keys(projects).filter(name => name !== '')
    fs.mkdirSync(path.join('project', folder), { recursive: true })
    fs.writeFileSync(path.join('project', folder, 'package.json'), JSON.stringify(written))
  }
  const words = ['install', '--package-lock-only', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error',
    '--prefer-offline', '--fetch-retries=4', '--fetch-retry-mintimeout=500', '--fetch-retry-maxtimeout=4000']
  const env = { ...process.env }
  for (const name of ['HTTPS_PROXY', 'https_proxy', 'HTTP_PROXY', 'http_proxy']) env[name] = settings.proxy
  const done = await runNpm([...words, `--cache=${settings.cache}`, ...options], env)
  if (done.status === 0) return listPackages(readJson('project/package-lock.json'))
  const hint = /no program is started/.test(done.seen) ? 'a package asks for a repository: not fetched\n' : ''
  const code = (/^npm (?:ERR!|error) code (\w+)$/m.exec(done.seen) || [])[1]
  const uri = (/ (?:- GET|request to) (\S+)/.exec(done.seen) || [])[1]
  if (!UNFIT.has(code)) throw Object.assign(new Error(hint + done.seen), { code, uri }) // asking for less would not help
  say(done.seen)
  return Object.assign([], { code })
}

// What says which Node.js a project is for, beside its own engines: those of the packages that it names itself, and the
// types of Node.js's API that it is written with; then those of all other packages, as far as they are known here.
async function listWishes (packages) {
  const asked = new Set(Object.values(readJson('projects.json')['']).flatMap(group => Object.keys(group)))
  const own = packages.filter(one => asked.has(one.file.slice(0, one.file.lastIndexOf('@')).replace('+', '/')))
  await Promise.all(own.filter(one => !one.engines).map(async one => {
    try {
      one.engines = (await pacote.manifest(requireSpec(one), settings)).engines
    } catch (error) {
      if (!NOT_GIVEN.has(error.code)) throw error
    }
  }))
  const read = one => {
    if (one.name === '@types/node') return `>=${semver.major(one.version)}`
    const wish = one.engines && one.engines.node
    return typeof wish === 'string' && wish.length <= RANGE_CHARS && semver.validRange(wish) ? wish : '*'
  }
  const rest = packages.filter(one => !own.includes(one) && one.name !== '@types/node' && isForThisSystem(one))
  return { named: own.map(read), others: rest.map(read) }
}

// Its newest version, of whatever line and day. What it lacks is no reason to set a lock file aside.
async function fetchNeededRuntime (name, wanted) {
  const found = await pacote.packument(name, settings).catch(error => {
    if (!NOT_THERE.has(error.code)) throw error
    return { versions: {} }
  })
  const tagged = new Map(Object.entries(found['dist-tags'] || {})).get(wanted)
  const version = tagged || semver.maxSatisfying(Object.keys(found.versions), wanted)
  if (!version) throw new Error(`the profile needs ${name}@${wanted}: the registry has no such version`)
  await fetchArchive({ name, version, file: `${name}@${version}.tgz` })
  return `, with Node.js ${version}`
}

// The Node.js that suits most of them, if the image's does not: of the oldest such line with long-term support, its
// newest version of the day. It is a package like any other, and nothing of it runs here. Returns what to say of it.
async function fetchRuntime (packages) {
  const name = `node-${process.platform}-${process.arch}`
  if (packages.some(one => one.name === name)) return ''
  const { node: own, runtime } = readJson('engines.json') // `runtime`: what the operator's profile needs
  if (runtime !== undefined) return fetchNeededRuntime(name, runtime)
  const { named, others } = await listWishes(packages)
  const count = (version, wishes) => wishes.filter(wish => semver.satisfies(version, wish)).length
  const weight = others.length + 1 // all others together count less than one that the project names
  const rate = version => semver.satisfies(version, own) ? count(version, named) * weight + count(version, others) : -1
  if (rate(process.versions.node) === named.length * weight + others.length) return ''
  let found
  try {
    found = await pacote.packument(name, { ...settings, fullMetadata: true })
  } catch (error) {
    if (!NOT_GIVEN.has(error.code)) throw error
    return ''
  }
  const rows = semver.rsort(Object.keys(found.versions))
    .filter(version => semver.major(version) % 2 === 0 && !semver.prerelease(version))
    .filter(version => semver.gt(version, process.versions.node) && !((found.time || {})[version] > asOf)) // no date: it may be of that day
    .map(version => ({ version, major: semver.major(version), rate: rate(version) }))
  const best = Math.max(rate(process.versions.node), ...rows.map(row => row.rate))
  if (best <= rate(process.versions.node)) return ''
  const line = Math.min(...rows.filter(row => row.rate === best).map(row => row.major))
  const { version } = rows.find(row => row.rate === best && row.major === line)
  await fetchArchive({ name, version, file: `${name}@${version}.tgz` })
  return `, with Node.js ${version}`
}

// What npm cannot read it says itself.
function parse (name, text) {
  try {
    return npa.resolve(name, text)
  } catch {
    return {}
  }
}

const listDevelopment = projects => Object.values(projects).flatMap(groups => Object.entries(groups.devDependencies || {}))

const writeNames = (file, names) => fs.writeFileSync(file, [...new Set(names)].sort().map(text => `${text}\n`).join(''))

// The development packages of which the registry has no version that fits: npm chooses none at all for the sake of one.
// What it does not give away, or does not answer for, it may have.
async function listAbsent (projects) {
  const waiting = [...new Map(listDevelopment(projects).map(([name, text]) => [`${name}@${text}`, parse(name, text)]))]
  const absent = []
  const work = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) {
      const [text, spec] = next
      if (!spec.registry) continue
      try {
        await pacote.manifest(spec, settings)
      } catch (error) {
        if (!NOT_THERE.has(error.code)) throw error
        absent.push(text)
      }
    }
  }
  await Promise.all(Array.from({ length: JOBS }, work))
  return absent
}

function leaveOut (projects, absent) {
  const keep = found => Object.fromEntries(Object.entries(found).filter(([name, text]) => !absent.includes(`${name}@${text}`)))
  const without = groups => ({ ...groups, devDependencies: keep(groups.devDependencies || {}) })
  return Object.fromEntries(Object.entries(projects).map(([folder, groups]) => [folder, without(groups)]))
}

// For peers that are not chosen: npm chooses none with `--legacy-peer-deps`.
function listLackingPeers (packages) {
  const there = new Set(packages.map(one => one.file.slice(0, one.file.lastIndexOf('@')).split(/[,:]/).pop().split('=')[0]))
  const isNeeded = (one, name) => !((one.peerDependenciesMeta || {})[name] || {}).optional
  const peers = packages.flatMap(one => Object.keys(one.peerDependencies || {}).filter(name => isNeeded(one, name)))
  return [...new Set(peers)].filter(name => !there.has(name.replace('/', '+'))).sort()
}

function shorten (names) {
  const more = names.length > SHOWN_PEERS ? ` and ${names.length - SHOWN_PEERS} more` : ''
  return `${names.slice(0, SHOWN_PEERS).join(', ')}${more}`
}

function describeLackingPeers (packages) {
  const lacking = listLackingPeers(packages)
  return lacking.length > 0 ? ` (none of: ${shorten(lacking)})` : ''
}

async function main () {
  fs.mkdirSync('archives')
  if (process.env.HTTPS_PROXY) settings.proxy = await startQueue()
  const locked = readJson('packages.json')
  if (locked.length > 0) {
    try {
      await fetchAll(locked)
      if (fs.readdirSync('archives').length === 0) throw new Error('no package of the lock file is for this system')
      return `all, as locked${await fetchRuntime(locked)}`
    } catch (error) {
      if (!NOT_THERE.has(error.code)) throw error
      say(`${error.message}\nthe lock file names versions that the registry lacks: it is not used`)
      fs.rmSync('archives', { recursive: true })
      fs.mkdirSync('archives')
    }
  }
  const runtime = ['dependencies', 'optionalDependencies', 'peerDependencies']
  const day = { name: `, as of ${asOf}`, options: [`--before=${asOf}`] }
  const newest = { name: '', options: [] }
  let projects = readJson('projects.json')
  let packages
  const choose = async (name, how, groups) => {
    packages = await resolve(projects, how, groups)
    await fetchAll(packages)
    return fs.readdirSync('archives').length > 0 && `${name}${await fetchRuntime(packages)}`
  }
  const withPeers = (all, when) => choose(`${all}${when.name}`, when)
  const withoutPeers = async (all, when, groups) => {
    const given = await choose(all, { options: [...when.options, '--legacy-peer-deps'] }, groups)
    return given && given.replace(all, `${all}${when.name}, whatever their peers${describeLackingPeers(packages)}`)
  }
  // The versions of the day, with younger ones of the peers that they lack.
  const withYoungerPeers = async all => {
    const without = await resolve(projects, { options: [...day.options, '--legacy-peer-deps'] })
    const lacking = listLackingPeers(without)
    if (lacking.length === 0) return false // also if there are no packages
    return choose(`${all}${day.name}, with younger peers (${shorten(lacking)})`, { options: [], keepsLock: true })
  }
  let chosen = await withPeers('all', day)
  const doNotFit = packages.code === 'ERESOLVE' // else one of them is younger than the commit
  const absent = chosen ? [] : await listAbsent(projects)
  const all = absent.length > 0 ? 'all but what the registry lacks' : 'all'
  if (absent.length > 0) { // then no attempt with all of them can succeed
    projects = leaveOut(projects, absent)
    writeNames('absent.txt', absent)
    chosen = await withPeers(all, day)
  }
  chosen = chosen || (!doNotFit && (await withYoungerPeers(all) || await withPeers(all, newest))) || await withoutPeers(all, day) ||
    (doNotFit && await withPeers(all, newest)) || await withoutPeers(all, newest)
  if (chosen) return chosen
  chosen = await withoutPeers('runtime', day, runtime) || await withoutPeers('runtime', newest, runtime)
  if (!chosen) throw new Error('no versions fit together')
  const there = new Set(packages.map(one => one.name)) // what a runtime package needs, too
  const missing = listDevelopment(projects).filter(([name]) => !there.has(name))
  writeNames('unfit.txt', missing.map(([name, text]) => `${name}@${text}`))
  return chosen
}

// A promise that waits for nothing would end the process as if all were well.
process.exitCode = 65
main().then(
  name => {
    fs.writeFileSync('selection.txt', `${name}\n`)
    process.exitCode = 0
  },
  error => {
    say(error.stack || String(error))
    noteAnswer(error)
    process.exit(65)
  }
)
