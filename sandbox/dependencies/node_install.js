// The install of npm packages: a guest without a network. It unpacks archives/ to layer/, links the commands of the
// packages, and runs their install scripts, which is code of others. A script that fails is not fatal: many download
// something that only some uses need. layer/failed-scripts.txt names it, and each check shows that.
'use strict'
const fs = require('fs')
const path = require('path')
const { spawnSync } = require('child_process')
const { createRequire } = require('module')

const npm = fs.realpathSync(spawnSync('sh', ['-c', 'command -v npm'], { encoding: 'utf8' }).stdout.trim())
const pacote = createRequire(npm)('pacote')
const SCRIPTS = ['preinstall', 'install', 'postinstall']
const SCRIPT_MS = 300_000
const layer = path.resolve('layer')
const newer = path.join(layer, 'node_modules', `node-${process.platform}-${process.arch}`, 'bin/node')
const failed = []

function parsePlace (file) {
  const placed = file.slice(0, file.lastIndexOf('@')).split('=')[0]
  const colon = placed.indexOf(':')
  const base = colon < 0 ? '' : placed.slice(0, colon).replace(/\+/g, '/')
  const names = placed.slice(colon + 1).split(',').map(name => name.replace(/\+/g, '/'))
  return { file, depth: names.length, folder: path.join(layer, base, ...names.flatMap(name => ['node_modules', name])) }
}

function readManifest (folder) {
  try {
    const found = JSON.parse(fs.readFileSync(path.join(folder, 'package.json'), 'utf8').replace(/^\uFEFF/, ''))
    return found && typeof found === 'object' ? found : {}
  } catch {
    return {}
  }
}

function fits (words, own) {
  const listed = typeof words === 'string' ? [words] : Array.isArray(words) ? words : []
  if (listed.includes(`!${own}`)) return false
  const wanted = listed.filter(word => !String(word).startsWith('!'))
  return wanted.length === 0 || wanted.includes(own) || wanted.includes('any')
}

// The commands of a package. A name or path that leaves its folder is none.
function linkCommands (folder, manifest) {
  const scope = path.basename(path.dirname(folder)).startsWith('@')
  const modules = scope ? path.dirname(path.dirname(folder)) : path.dirname(folder)
  let commands = manifest.bin || {}
  if (typeof commands === 'string') commands = { [path.basename(folder)]: commands }
  if (!manifest.bin && manifest.directories && typeof manifest.directories.bin === 'string') {
    const inner = path.join(folder, path.join('/', manifest.directories.bin))
    const names = fs.existsSync(inner) ? fs.readdirSync(inner) : []
    commands = Object.fromEntries(names.map(name => [name, path.relative(folder, path.join(inner, name))]))
  }
  for (const [name, place] of Object.entries(commands)) {
    const target = path.join(folder, path.join('/', String(place)))
    const link = path.join(modules, '.bin', path.basename(name))
    if (!fs.existsSync(target) || !fs.statSync(target).isFile() || fs.existsSync(link)) continue
    fs.mkdirSync(path.dirname(link), { recursive: true })
    fs.symlinkSync(path.relative(path.dirname(link), target), link)
    const text = fs.readFileSync(target)
    const firstLine = text.subarray(0, 200).indexOf('\r\n')
    if (text.subarray(0, 2).toString() === '#!' && firstLine > 0 && !text.subarray(0, firstLine).includes('\n')) {
      fs.writeFileSync(target, Buffer.concat([text.subarray(0, firstLine), text.subarray(firstLine + 1)]))
    }
    fs.chmodSync(target, 0o755)
  }
}

function listCommandFolders (folder) {
  const found = []
  for (let here = folder; here.startsWith(layer); here = path.dirname(here)) found.push(path.join(here, 'node_modules/.bin'))
  return found
}

function runScripts (folder, manifest) {
  const node = fs.existsSync(newer) ? newer : process.execPath // what checks will run
  const scripts = { ...(manifest.scripts || {}) }
  const native = fs.existsSync(path.join(folder, 'binding.gyp')) && manifest.gypfile !== false
  if (native && !scripts.install && !scripts.preinstall) scripts.install = 'node-gyp rebuild'
  for (const name of SCRIPTS) {
    if (typeof scripts[name] !== 'string') continue
    const done = spawnSync('sh', ['-c', scripts[name]], {
      cwd: folder,
      encoding: 'utf8',
      timeout: SCRIPT_MS,
      killSignal: 'SIGKILL',
      maxBuffer: 64 * 1024 * 1024,
      env: {
        ...process.env,
        npm_config_nodedir: path.resolve(node, '../..'), // node-gyp would download the headers
        PATH: [...listCommandFolders(folder), process.env.PATH].join(':'),
        INIT_CWD: layer,
        npm_execpath: npm,
        npm_node_execpath: node,
        npm_lifecycle_event: name,
        npm_lifecycle_script: scripts[name],
        npm_package_name: String(manifest.name),
        npm_package_version: String(manifest.version)
      }
    })
    if (done.status === 0) continue
    const lines = `${done.stdout || ''}\n${done.stderr || ''}`.trim().split('\n')
    failed.push(`${manifest.name}@${manifest.version} ${name}: ${(lines.find(line => /error/i.test(line)) || lines.pop()).slice(0, 200)}`)
    process.stderr.write(`${lines.slice(-20).join('\n')}\n`)
    return
  }
}

// node-gyp gives what it built a second name, and the host takes no such file: it could be one of elsewhere.
function separateFiles (folder) {
  for (const entry of fs.readdirSync(folder, { withFileTypes: true })) {
    const name = path.join(folder, entry.name)
    if (entry.isDirectory()) separateFiles(name)
    else if (entry.isFile() && fs.lstatSync(name).nlink > 1) {
      fs.copyFileSync(name, `${name}.copy`)
      fs.renameSync(`${name}.copy`, name)
    }
  }
}

async function main () {
  fs.mkdirSync(path.join(layer, 'node_modules'), { recursive: true })
  const places = fs.readdirSync('archives').map(parsePlace).sort((a, b) => a.depth - b.depth || (a.file < b.file ? -1 : 1))
  const installed = []
  for (const { file, folder } of places) {
    if (!fs.existsSync(path.dirname(folder)) && folder.split('/node_modules/').length > 2) {
      const above = folder.slice(0, folder.lastIndexOf('/node_modules/'))
      if (!fs.existsSync(above)) continue // of a package for another system, which was left out
    }
    await pacote.extract(`file:${path.resolve('archives', file)}`, folder, { cache: '/tmp/npm-cache', ignoreScripts: true })
    const manifest = readManifest(folder)
    if (fits(manifest.os, process.platform) && fits(manifest.cpu, process.arch)) installed.push({ folder, manifest })
    else fs.rmSync(folder, { recursive: true })
  }
  for (const { folder, manifest } of installed) linkCommands(folder, manifest)
  for (const { folder, manifest } of installed.reverse()) runScripts(folder, manifest) // what is nested comes first
  separateFiles(layer)
  if (failed.length > 0) fs.writeFileSync(path.join(layer, 'failed-scripts.txt'), failed.map(line => `${line}\n`).join(''))
}

main().catch(error => {
  process.stderr.write(`${error.stack || error}\n`)
  process.exit(1)
})
