// Starts the emulator on a free port and prints its URL; ends with its standard input, so with whoever started it.
const [, , entry, seed] = process.argv;
const { createEmulator } = await import(entry);
const emulator = await createEmulator({ service: "github", port: 0, seed: JSON.parse(seed) });
console.log(emulator.url);
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
