// Runs vprof's WebAssembly: `vprof mcp`, the server that agents use, over standard input and output.
//
// The page posts {base, program, epoch}, then {id, tool, arguments, files} and {cancel: id}; the worker posts {loading, program}, {ready},
// {id, progress, report}, {id, text, table, failed} and {broken}. Nothing leaves this machine: the only requests are for files beside this one.
"use strict";

let base; // the folder of the page
let site; // data.json: the version of the page, and the sizes of its files
const encoder = new TextEncoder(), decoder = new TextDecoder();
const fault = (code) => Object.assign(new Error(code), {code});
const broken = (reason) => postMessage({broken: String(reason)});

// fetchKept returns a file of the page, from the cache if it has been loaded before, and keeps it there.
async function fetchKept(path) {
  const cache = globalThis.caches && await caches.open(site.version).catch(() => null);
  const kept = cache && await cache.match(base + path);
  if (kept) return kept;
  const answer = await fetch(base + path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${answer.statusText}`);
  if (cache) cache.put(base + path, answer.clone()).catch(() => {}); // no room: it is loaded again
  return answer;
}

// The file system of the Go program: the user's files in /model, the page's data in /vprof. Both are read-only.
const FOLDER = "/model/", DATA = "/vprof/";
let dropped = new Map();
const data = new Map(), opened = new Map();
let lastFile = 2;

// contentOf returns the bytes of a file, or a promise of them; null for a folder.
function contentOf(path) {
  if (!path.startsWith("/")) path = FOLDER + path;
  path = path.replaceAll(/\/\.?(?=\/|$)/g, "") || "/";
  if (dropped.has(path)) return dropped.get(path);
  const name = path.slice(DATA.length);
  if (path.startsWith(DATA) && name in site.data) {
    if (!data.has(name)) data.set(name, fetchKept(name).then(async (a) => new Uint8Array(await a.arrayBuffer())));
    return data.get(name);
  }
  if (path === "/" || path + "/" === FOLDER) return null;
  throw fault("ENOENT");
}

function stat(content) {
  const size = content ? content.length : 0, mode = content ? 0o100444 : 0o040555;
  return {dev: 0, ino: 0, mode, nlink: 1, uid: 0, gid: 0, rdev: 0, size, blksize: 4096, blocks: Math.ceil(size / 512),
    atimeMs: 0, mtimeMs: 0, ctimeMs: 0, isDirectory: () => !content};
}

// answering turns a function into one of Node's, which answers through its last argument.
const answering = (f) => (...args) => {
  const done = args.pop();
  const fail = (e) => {
    if (!e.code) broken(e.message); // a file of the page did not load
    done(e.code ? e : fault("EIO"));
  };
  try {
    const v = f(...args);
    if (v instanceof Promise) v.then((v) => done(null, v), fail); else done(null, v);
  } catch (e) { fail(e); }
};
const refused = answering(() => { throw fault("EROFS"); });

const terminal = {...stat(new Uint8Array()), mode: 0o020600, isDirectory: () => false};
let input = new Uint8Array(), reader = null;
let output = "", errors = "";

function feed() {
  if (!reader || !input.length) return;
  const {buffer, offset, length, done} = reader, n = Math.min(length, input.length);
  buffer.set(input.subarray(0, n), offset);
  input = input.subarray(n);
  reader = null;
  done(null, n);
}

function written(fd, bytes) {
  if (fd === 2) {
    errors = (errors + decoder.decode(bytes)).slice(-4000);
  } else {
    output += decoder.decode(bytes, {stream: true});
    const lines = output.split("\n");
    output = lines.pop();
    lines.filter(Boolean).forEach((line) => receive(JSON.parse(line)));
  }
  return bytes.length;
}

const writing = "chmod chown fchmod fchown ftruncate lchown link mkdir readlink rename rmdir symlink truncate unlink utimes";
globalThis.fs = {
  ...Object.fromEntries(writing.split(" ").map((name) => [name, refused])),
  constants: {O_WRONLY: 1, O_RDWR: 2, O_CREAT: 64, O_TRUNC: 512, O_APPEND: 1024, O_EXCL: 128, O_DIRECTORY: 65536},
  writeSync: written,
  write(fd, bytes, offset, length, position, done) {
    const n = written(fd, bytes.subarray(offset, offset + length));
    setTimeout(done, 0, null, n); // messages that came in the meantime are read first: Go lets no others through while it computes
  },
  fsync: answering(() => null),
  open: answering((path, flags) => {
    if (flags & 3) throw fault("EROFS");
    const take = (content) => { opened.set(++lastFile, {content, at: 0}); return lastFile; };
    const content = contentOf(path);
    return content instanceof Promise ? content.then(take) : take(content);
  }),
  close: answering((fd) => { opened.delete(fd); return null; }),
  fstat: answering((fd) => fd <= 2 ? terminal : stat(opened.get(fd).content)),
  stat: answering((path) => { const c = contentOf(path); return c instanceof Promise ? c.then(stat) : stat(c); }),
  readdir: answering((path) => path + "/" === FOLDER || path === "."
    ? [...dropped.keys()].map((k) => k.slice(FOLDER.length)) : []),
  read(fd, buffer, offset, length, position, done) {
    if (fd === 0) { reader = {buffer, offset, length, done}; feed(); return; }
    const f = opened.get(fd), from = position ?? f.at, part = f.content.subarray(from, from + length);
    buffer.set(part, offset);
    if (position === null) f.at += part.length;
    done(null, part.length);
  },
};
fs.lstat = fs.stat;
globalThis.process = {pid: 1, ppid: 0, cwd: () => FOLDER.slice(0, -1), getuid: () => 0, getgid: () => 0,
  geteuid: () => 0, getegid: () => 0, getgroups: () => [], umask: () => 0, chdir: () => { throw fault("ENOSYS"); }};

// JSON-RPC, one message a line.
function send(message) {
  const line = encoder.encode(JSON.stringify({jsonrpc: "2.0", ...message}) + "\n");
  const all = new Uint8Array(input.length + line.length);
  all.set(input);
  all.set(line, input.length);
  input = all;
  feed();
}

function receive(m) {
  if (m.id === "hello") {
    send({method: "notifications/initialized"});
    postMessage({ready: m.result.serverInfo.version});
  } else if (m.method === "notifications/progress") {
    postMessage({id: m.params.progressToken, progress: m.params.message, report: m.params._meta?.report});
  } else if (m.id !== undefined && m.error) {
    postMessage({id: m.id, failed: true, text: m.error.message});
  } else if (m.id !== undefined) {
    const [answer, table] = m.result.content;
    postMessage({id: m.id, failed: m.result.isError === true, text: answer.text, table: table?.text});
  }
}

// load returns the compiled program, and tells how far it is.
async function load() {
  const packed = await fetchKept("vprof.bin");
  let loaded = 0, shown = 0;
  const counted = packed.body.pipeThrough(new TransformStream({transform(part, to) {
    loaded += part.length;
    if (loaded - shown > site.program / 50) postMessage({loading: (shown = loaded) / site.program});
    to.enqueue(part);
  }})).pipeThrough(new DecompressionStream("gzip"));
  return WebAssembly.compileStreaming(new Response(counted, {headers: {"Content-Type": "application/wasm"}}));
}

async function start({program, epoch}) {
  site = await (await fetch(base + "data.json")).json();
  importScripts(base + "wasm_exec.js");
  program ??= await load();
  postMessage({loading: 1, program});
  const go = new Go();
  go.argv = ["vprof", "mcp"];
  go.env = {HF_HUB_OFFLINE: "1", ...epoch && {SOURCE_DATE_EPOCH: epoch}}; // nothing is fetched from the hub
  go.exit = (code) => broken(errors || `vprof ended with exit code ${code}`);
  go.run(await WebAssembly.instantiate(program, go.importObject)).catch(broken);
  send({id: "hello", method: "initialize", params:
    {protocolVersion: "2025-06-18", capabilities: {}, clientInfo: {name: "vprof page", version: site.version}}});
}

// The first message has the folder of the page, and the compiled program if another worker has it; others are calls.
onmessage = ({data: q}) => {
  if (!base) { base = q.base; start(q).catch(broken); return; }
  if (q.cancel) { send({method: "notifications/cancelled", params: {requestId: q.cancel}}); return; }
  dropped = new Map(q.files.map((f) => [FOLDER + f.name, f.bytes]));
  send({id: q.id, method: "tools/call", params: {name: q.tool, arguments: q.arguments, _meta: {progressToken: q.id}}});
};
