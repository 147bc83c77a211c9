// Required before npm: the CA certificates are read once, not for each connection. Through a proxy each request has a
// connection of its own, and Node.js 18 reads 145 certificates in 29 ms: two thirds of a fetch of 260 packages.
'use strict'
const tls = require('tls')

const contexts = new Map() // by the certificates: an array of npm's settings, or text
const OTHER = ['secureContext', 'cert', 'key', 'pfx', 'crl', 'ciphers', 'secureProtocol', 'minVersion', 'maxVersion', 'sigalgs']
const connect = tls.connect

tls.connect = (options, ...rest) => {
  if (!options || !options.ca || OTHER.some(name => options[name])) return connect(options, ...rest)
  let secureContext = contexts.get(options.ca)
  if (!secureContext) {
    secureContext = tls.createSecureContext({ ca: options.ca })
    if (contexts.size < 100) contexts.set(options.ca, secureContext)
  }
  return connect({ ...options, secureContext }, ...rest)
}
