// Required before npm: no program is started by it. npm would start git, and itself in a package that it prepares, with
// the settings of that package's .npmrc: code of a package would run with the network of the fetch.
'use strict'
const programs = require('child_process')

for (const name of ['exec', 'execFile', 'execFileSync', 'execSync', 'fork', 'spawn', 'spawnSync']) {
  programs[name] = (...words) => {
    throw new Error(`no program is started in a fetch: ${[words[0], words[1]].flat().join(' ').slice(0, 200)}`)
  }
}
