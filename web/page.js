// The page: a form, the question that it makes, and the answer of vprof, which runs in workers.
"use strict";

const $ = (id) => document.getElementById(id);
const form = $("question");
const GiB = 2 ** 30;
const gib = (bytes) => bytes > 0 && bytes < GiB / 200 ? "<0.01" : (bytes / GiB).toFixed(2);
const range = (i) => `[${gib(i.low_bytes)}, ${gib(i.high_bytes)}]`;
const percent = (part, whole) => `${Math.round(100 * part / whole)} %`;

// make returns an element with attributes and children; text is text and never HTML.
function make(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attributes)) {
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v); else e.setAttribute(k, v);
  }
  e.append(...children);
  return e;
}

const base = new URL(".", location).href;

// An Engine is a worker with vprof, which answers one call at a time.
class Engine {
  constructor(program, loading) {
    Object.assign(this, {program, loading, calls: new Map(), last: 0});
    this.start();
  }

  start() {
    // A worker from a blob is under the page's content security policy; one from a file would be under its server's.
    const script = `importScripts(${JSON.stringify(new URL("worker.js", base).href)})`;
    const url = URL.createObjectURL(new Blob([script], {type: "text/javascript"}));
    this.worker = new Worker(url);
    this.url = url;
    this.ready = new Promise((resolve, reject) => Object.assign(this, {resolve, reject}));
    this.ready.catch(() => {});
    this.worker.onmessage = ({data: m}) => this.receive(m);
    this.worker.onerror = (e) => this.receive({broken: e.message || "the worker did not start"});
    const epoch = new URLSearchParams(location.search).get("SOURCE_DATE_EPOCH"); // stops the clock, for tests
    this.worker.postMessage({program: this.program, base, epoch});
  }

  receive(m) {
    const call = this.calls.get(m.id);
    if (m.program) this.program = m.program;
    if (m.loading !== undefined) this.loading?.(m.loading);
    if (m.ready) { URL.revokeObjectURL(this.url); this.resolve(m.ready); }
    if (m.report && call) call.look?.(m.report);
    else if (m.progress && call) call.progress?.(m.progress);
    if (m.text !== undefined && call) { this.calls.delete(m.id); call.resolve(m); }
    if (m.broken !== undefined) this.stop(new Error(m.broken));
  }

  // stop ends the work of the worker, whatever it is, and has another one for the next call.
  stop(reason) {
    this.worker.terminate();
    this.reject(reason);
    for (const call of this.calls.values()) call.reject(reason);
    this.calls.clear();
    this.worker = null;
  }

  // cancel ends all calls. The worker stays, and ends its work on them as soon as it can.
  cancel() {
    for (const [id, call] of this.calls) {
      this.worker.postMessage({cancel: id});
      call.reject(new Error("stopped"));
    }
    this.calls.clear();
  }

  // call returns the answer of a tool: its text, and whether it failed. Before that, look gets reports that are not complete.
  async call(tool, args, progress, look) {
    if (!this.worker) this.start();
    await this.ready;
    const id = ++this.last;
    return new Promise((resolve, reject) => {
      this.calls.set(id, {resolve, reject, progress, look});
      this.worker.postMessage({id, tool, arguments: args, files: [...files.values()]});
    });
  }
}

// The user's files by name. They stay in this page.
const files = new Map();

// kindOf tells a model from a trainer's file, and both from files that vprof does not read.
function kindOf(file) {
  const [, suffix] = file.name.match(/\.(json|pt2|sh|toml|txt|ya?ml)$/) ?? [];
  if (suffix !== "json") return suffix === "pt2" ? "pt2" : suffix ? "trainer" : "unknown";
  try {
    const config = JSON.parse(new TextDecoder().decode(file.bytes));
    return config.model_type || config.architectures ? "config" : "trainer";
  } catch { return "trainer"; }
}

async function addFiles(list) {
  for (const f of list) {
    const file = {name: f.name, bytes: new Uint8Array(await f.arrayBuffer())};
    file.kind = kindOf(file);
    files.set(f.name, file);
    if (file.kind !== "trainer") form.elements.model.value = "";
  }
  if (list.length && form.elements.model.value === example.model) form.elements.model.value = "";
  showFiles();
  ask();
}

function showFiles() {
  $("files").replaceChildren(...[...files.keys()].map((name) => make("li", {}, name, " ",
    make("button", {type: "button", "aria-label": `Remove ${name}`, onclick: () => { files.delete(name); showFiles(); ask(); }}, "×"))));
}

// What the flags of the last field say: {flag: value}, with an object for a flag that is repeated, as --set is.
function flagsOf(text) {
  const flags = {}, words = text.match(/(?:[^\s"']+|"[^"]*"|'[^']*')+/g) ?? [];
  for (let i = 0; i < words.length; i++) {
    const word = words[i].replaceAll(/["']/g, ""), cut = word.indexOf("=");
    if (!word.startsWith("--")) throw new Error(`${word}: not a flag; flags begin with --`);
    const name = word.slice(2, cut < 0 ? undefined : cut);
    let value = cut < 0 ? true : word.slice(cut + 1);
    if (cut < 0 && i + 1 < words.length && !words[i + 1].startsWith("--")) value = words[++i].replaceAll(/["']/g, "");
    flags[name] = [...flags[name] ?? [], value];
  }
  for (const [name, values] of Object.entries(flags)) {
    flags[name] = values.length === 1 ? values[0]
      : values.every((v) => String(v).includes("=")) ? Object.fromEntries(values.map((v) => [v.slice(0, v.indexOf("=")), v.slice(v.indexOf("=") + 1)]))
      : values;
  }
  return flags;
}

const named = () => [...form.elements].filter((e) => e.name);

// question returns the arguments of plan that the form makes.
function question() {
  const q = {};
  for (const e of named()) if (e.value.trim()) q[e.name] = e.value.trim();
  for (const f of files.values()) {
    if (f.kind === "pt2") q.model ??= f.name;
    if (f.kind === "config") q.model ??= "hf:" + f.name;
    if (f.kind === "trainer") (q.files ??= []).push(f.name);
    if (f.kind === "unknown") throw new Error(`vprof cannot read ${f.name}. It reads a model's config.json or .pt2, and a ` +
      "trainer's .yaml, .json, .toml or .sh file.");
  }
  return {...q, ...flagsOf($("more").value)};
}

const quoted = (s) => /^[\w@%+=:,./-]+$/.test(s) ? s : `'${s.replaceAll("'", `'\\''`)}'`;

// commandOf returns the command line with the arguments of a question.
function commandOf(verb, {files: paths = [], ...q}) {
  const words = ["vprof", verb, ...paths.map(quoted)];
  for (const [name, value] of Object.entries(q)) {
    const values = Array.isArray(value) ? [value.join(",")]
      : typeof value === "object" ? Object.entries(value).map((e) => e.join("=")) : [value];
    for (const v of values) words.push(v === true ? "--" + name : `--${name} ${quoted(String(v))}`);
  }
  return words.join(" ");
}

// The fragment holds the question: the fields, and the names of files.
function toLink() {
  const parts = named().concat($("more")).filter((e) => e.value.trim()).map((e) => [e.name || e.id, e.value.trim()]);
  for (const name of files.keys()) parts.push(["file", name]);
  history.replaceState(null, "", "#" + new URLSearchParams(parts));
}

function fromLink() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const given = [...parts].length ? parts : new URLSearchParams(example);
  for (const e of named().concat($("more"))) {
    const value = given.get(e.name || e.id) ?? "";
    if (e.tagName === "SELECT" && ![...e.options].some((o) => o.value === value)) e.append(new Option(value, value));
    e.value = value;
  }
  return given.getAll("file").filter((name) => !files.has(name));
}

const example = {model: "gpt2", gpu: "rtx-4090", amp: "bf16"};
const engine = new Engine(null, (share) => { $("progress").value = share; });
let background = null; // answers what nobody waits for, and what takes long
let turn = 0, waiting = null, answered = false;
let report = null, chosen = 0, text = "";

function say(words) { $("said").textContent = words; }

function busy(words) {
  $("status").hidden = !words;
  if (!words) return;
  $("state").textContent = words;
  const [, done, total] = words.match(/(\d+) of (\d+) /) ?? [];
  if (total) $("progress").value = done / total; else if (answered) $("progress").removeAttribute("value");
}

function verdict(tone, ...words) {
  $("verdict").hidden = false;
  $("verdict").className = "verdict " + tone;
  $("verdict").replaceChildren(...words);
}

function fail(message) {
  background?.cancel();
  verdict("bad", make("b", {}, "No answer. "), message.replace(/\nSee "vprof .*/, ""));
  for (const id of ["need", "largest", "fits", "take"]) $(id).hidden = true;
}

// ask answers the question of the form, and no earlier one any more.
async function ask() {
  const mine = ++turn;
  engine.cancel();
  background?.cancel();
  toLink();
  await waiting;
  if (mine !== turn) return;
  busy(answered ? "Computing" : "Loading vprof");
  let done;
  waiting = new Promise((resolve) => { done = resolve; });
  try {
    await answer(question(), mine);
  } catch (e) {
    if (mine === turn) fail(e.message);
  } finally {
    if (mine === turn) busy("");
    document.body.dataset.answered = mine;
    done();
  }
}

// answer shows the need first, then the verdict, then the complete answer, in whose text other releases are judged, too. From
// the verdict on, the other worker computes the largest batch and other GPUs.
async function answer(q, mine) {
  const began = performance.now(), since = () => Math.round(performance.now() - began);
  const took = document.body.dataset;
  let besides = null;
  const go = () => { besides ??= after(q, mine); };
  const progress = (words) => { if (mine === turn) busy(took.judged ? "Verdict ready; still computing " + words : words); };
  [text, chosen] = ["", 0];
  took.shown = took.judged = "";
  const whole = await engine.call("plan", {...q, report: true}, progress, (r) => {
    if (mine !== turn) return;
    report = r;
    show(q);
    took.shown ||= since();
    if (!isJudged(r)) return;
    took.judged ||= since();
    progress("needs with other settings");
    go();
  });
  took.whole = since();
  if (mine !== turn) return;
  answered = true;
  if (whole.failed) throw new Error(whole.text);
  [text, report] = [whole.text, JSON.parse(whole.text)];
  show(q);
  $("printed").textContent = whole.table;
  keep();
  go();
}

const isJudged = (r) => r.points.length > 0 && r.points.every((p) => p.estimate?.verdict);

const verdicts = {
  "fits": ["good", "Safe"], "tight": ["doubtful", "Tight"], "fits slowly": ["doubtful", "Fits slowly"],
  "not known without a recording": ["doubtful", "Not known without a recording"], "does not fit": ["bad", "Does not fit"],
  "": ["open", "So far"],
};
const reasons = {
  "over-share": "over the share of the memory that may be filled", "gpu-full": "over the memory of the GPU",
  "gives-back": "PyTorch frees its cache in every step", "oom": "out of memory", "not-recorded": "not recorded",
  "host-full": "over the memory of the host", "smaller-batch": "a smaller batch is not safe",
};

// judged returns the tone and the words of a point's verdict.
function judged(e) {
  const [tone, words] = verdicts[e.verdict] ?? ["doubtful", e.verdict];
  return e.unsafe && e.verdict === "fits" ? ["doubtful", "Fits, but is not safe"] : [tone, words];
}

const deviceOf = (p) => report.devices.find((d) => d.name === p.device);

// show shows the report. Until its text is there it is incomplete: a verdict may be missing, and intervals may widen.
function show(q) {
  $("need").hidden = false;
  $("take").hidden = !text;
  $("points").replaceChildren(...report.points.length < 2 ? [] : report.points.map((p, i) => make("button",
    {type: "button", "aria-pressed": i === chosen, onclick: () => { chosen = i; show(q); }},
    `${report.devices.length > 1 ? deviceOf(p).gpu + ", " : ""}batch ${p.batch}: ${judged(p.estimate)[1].toLowerCase()}`)));
  const p = report.points[chosen], e = p.estimate, d = deviceOf(p), c = report.case;
  const [tone, words] = judged(e);
  verdict(tone, make("b", {}, `${words}. `), `Batch ${p.batch} needs ${gib(e.device.bytes)} GiB of the ${gib(d.memory_bytes)} GiB of ` +
    `${c.gpus > 1 ? "each of " + c.gpus : "one"} ${d.title}`, e.unsafe ? `: ${reasons[e.unsafe] ?? e.unsafe}.` : ".",
    e.verdict ? "" : " The verdict follows.");
  $("need-sub").textContent = `${c.model}, ${c.stage}, ${c.amp === "none" ? "no autocast" : c.amp + " autocast"}, ` +
    `batch of ${p.batch} ${c.batch_unit}${p.batch === 1 ? "" : "s"}, PyTorch ${c.torch}. Estimated, not measured; ` +
    `the device needs ${range(e.device)} GiB${text ? "." : " so far."}`;
  showParts(e, d);
  showNotes(p, e);
  $("command").textContent = commandOf("plan", q);
  $("sweep").textContent = commandOf("sweep", {...without(q, "gpu", "gpus", "strategy"), device: "cuda:0"});
  $("verb").hidden = true;
}

const without = (q, ...names) => Object.fromEntries(Object.entries(q).filter(([k]) => !names.includes(k)));

function showParts(e, d) {
  const scale = Math.max(d.memory_bytes, e.device.high_bytes), largest = Math.max(...e.components.map((c) => c.bytes));
  const bar = $("bar"), place = (name, from, to) => {
    const part = make("span", {class: name});
    part.style.left = `${100 * from / scale}%`;
    part.style.width = `${100 * (to - from) / scale}%`;
    return part;
  };
  let at = 0;
  bar.replaceChildren(...e.components.map((c) => place("c-" + c.name.replaceAll(" ", "-"), at, at += c.bytes)),
    place("interval", e.device.low_bytes, e.device.high_bytes), place("limit", d.memory_bytes, d.memory_bytes));
  bar.setAttribute("aria-label", `${percent(e.device.bytes, d.memory_bytes)} of the memory of the ${d.title}`);
  $("components").tBodies[0].replaceChildren(...e.components.map((c) => {
    const share = make("span", {class: "share c-" + c.name.replaceAll(" ", "-")});
    share.style.width = `${largest ? 100 * c.bytes / largest : 0}%`;
    return make("tr", {}, make("th", {scope: "row"}, c.name, share), make("td", {class: "num"}, gib(c.bytes)),
      make("td", {class: "num"}, percent(c.bytes, e.device.bytes)));
  }));
  $("components").tFoot.replaceChildren(...["allocated", "reserved", "device"].map((name) => make("tr", {},
    make("th", {scope: "row"}, name), make("td", {class: "num"}, gib(e[name].bytes)),
    make("td", {class: "num"}, name === "allocated" ? "" : range(e[name])))));
}

function showNotes(p, e) {
  const notes = [`The peak is in ${e.peak_phase}.`];
  const source = report.coefficients?.find((c) => c.name === "reserved_residual")?.source;
  if (source) notes.push(`Intervals come from ${source}.`);
  if (e.decides) notes.push(`What decides: ${e.decides.what}, batch ${e.decides.batch}` +
    (e.decides.need_bytes ? ` may need ${gib(e.decides.need_bytes)} of ${gib(e.decides.limit_bytes)} GiB.` : "."));
  if (p.expandable_device) {
    notes.push(`With PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True it needs ${gib(p.expandable_device.bytes)} GiB.`);
  }
  if (e.other_loop) notes.push(`The training loop is assumed to be ${e.loop}; ${e.other_loop.loop} needs ` +
    `${gib(e.other_loop.device_bytes)} GiB: --loop ${e.other_loop.loop}.`);
  if (e.host) notes.push(`The host needs ${gib(e.host.bytes)} GiB ${range(e.host)}.`);
  const others = p.stack_range;
  if (others) notes.push(`A run that others report, also with other releases (${others.over.join(", ")}), needs ` +
    `${range(others.device)} GiB: ${verdicts[others.verdict]?.[1].toLowerCase() ?? others.verdict}.`);
  if (!text) notes.push(e.verdict ? "Still being computed: needs with other settings and other releases."
    : "Still being computed: the verdict.");
  for (const w of report.warnings ?? []) notes.push(w.hint ? `${w.what}; ${w.hint}` : w.what);
  $("notes").replaceChildren(...notes.map((n) => make("li", {}, n)));
}

// after computes in the other worker the largest safe batch and the verdicts on all GPUs.
async function after(q, mine) {
  background ??= new Engine(engine.program);
  try {
    await largest(q, mine);
    await others(q, mine);
  } catch (e) {
    if (mine === turn) say(e.message);
  }
  if (mine === turn) document.body.dataset.finished = mine;
}

async function largest(q, mine) {
  const {gpu, torch} = report.devices[0], c = report.case;
  $("largest").hidden = false;
  $("largest-text").replaceChildren("Searching");
  const args = {...without(q, "batch"), gpu: q.gpu ? q.gpu.split(",")[0] : gpu, stage: c.stage, amp: c.amp,
    checkpointing: c.recompute ?? c.checkpointing, accumulate: c.accumulate};
  const answer = await background.call("fit", {...args, report: true});
  if (mine !== turn) return;
  if (answer.failed) { $("largest-text").textContent = answer.text; return; }
  const best = JSON.parse(answer.text).choices.find((each) => each.batch > 0);
  $("largest-text").replaceChildren(...best ? [
    make("b", {}, `${best.batch} ${c.batch_unit}${best.batch === 1 ? "" : "s"}`),
    ` at these settings: ${gib(best.estimate.device.bytes)} GiB ${range(best.estimate.device)}. `,
    make("button", {type: "button", onclick: () => { form.elements.batch.value = best.batch; ask(); }}, "Use this batch"),
  ] : ["No batch is safe at these settings. Try checkpointing, adapters, or a larger GPU."]);
}

// GPUs of a call: few, so that rows appear soon.
const AT_ONCE = 6;

async function others(q, mine) {
  const rows = $("gpus").tBodies[0], safe = [];
  rows.replaceChildren();
  $("fits").hidden = false;
  const batch = q.batch ? q.batch.split(",")[0] : undefined;
  const args = {...without(q, "gpu-memory", "gpu-spec", "batch"), ...batch && {batch}};
  for (let i = 0; i < site.gpus.length && mine === turn; i += AT_ONCE) {
    const some = site.gpus.slice(i, i + AT_ONCE);
    const answer = await background.call("plan", {...args, gpu: some.map((g) => g.name), report: true});
    if (mine !== turn) return;
    if (answer.failed) { $("fits-text").textContent = answer.text; return; }
    const r = JSON.parse(answer.text);
    for (const g of some) {
      const e = r.points.find((p) => p.device === "sim:" + g.name)?.estimate;
      if (!e) continue;
      const [tone, words] = judged(e);
      if (tone === "good") safe.push(g);
      rows.append(make("tr", {class: tone}, make("th", {scope: "row"}, make("button", {type: "button", class: "plain",
        onclick: () => { form.elements.gpu.value = g.name; ask(); scrollTo(0, 0); }}, g.product)),
      make("td", {class: "num"}, gib(g.memory)), make("td", {class: "num"}, gib(e.device.bytes)), make("td", {}, words)));
    }
    const done = Math.min(i + AT_ONCE, site.gpus.length), all = site.gpus.length;
    const found = safe.length ? `Safe on ${safe.length}; the one with the least memory is the ${safe[0].product}.` : "Safe on none.";
    $("fits-text").textContent = (done < all ? `${done} of ${all} GPUs so far. ` : `${all} GPUs. `) + found;
  }
}

// more runs another verb with the question, and shows what it prints.
async function more(verb) {
  const q = question(), args = verb === "fit" ? without(q, "batch", "amp", "checkpointing") : q;
  const out = $("verb");
  out.hidden = false;
  const head = "$ " + commandOf(verb, args) + "\n";
  out.textContent = head + "Computing";
  try {
    const answer = await engine.call(verb, args, (words) => { out.textContent = head + words; });
    out.textContent = head + answer.text;
  } catch (e) {
    out.textContent = head + e.message;
  }
}

async function copy(words, what) {
  try {
    await navigator.clipboard.writeText(words);
    say(`Copied ${what}.`);
  } catch { say(words); }
}

function save() {
  const url = URL.createObjectURL(new Blob([text], {type: "application/json"}));
  make("a", {href: url, download: "plan.json"}).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// keep makes the page work without a network, once it has answered.
async function keep() {
  if (!("serviceWorker" in navigator) || keep.begun) return;
  keep.begun = true;
  const registration = await navigator.serviceWorker.register("sw.js").catch(() => null);
  if (!registration) return;
  const offer = () => { $("update").hidden = !(registration.waiting && registration.active); };
  registration.addEventListener("updatefound", () => registration.installing?.addEventListener("statechange", offer));
  offer();
  $("update").onclick = () => {
    navigator.serviceWorker.addEventListener("controllerchange", () => location.reload());
    registration.waiting?.postMessage("update");
  };
  navigator.serviceWorker.addEventListener("message", () => { $("offline").textContent = "All of it works offline."; });
  const {active} = await navigator.serviceWorker.ready;
  $("offline").textContent = "Works offline.";
  if (!navigator.connection?.saveData) active.postMessage("keep");
}

// site is what the build knows: models, GPUs, and the values of flags.
let site = null;

function fill() {
  $("version").textContent = `vprof ${site.release}`;
  $("models").replaceChildren(...site.models.map((m) => make("option", {value: m.name}, m.summary)));
  const gpu = form.elements.gpu;
  for (const generation of new Set(site.gpus.map((g) => g.generation).reverse())) {
    const of = site.gpus.filter((g) => g.generation === generation);
    gpu.append(make("optgroup", {label: generation}, ...of.map((g) => new Option(`${g.product}, ${gib(g.memory)} GiB`, g.name))));
  }
  for (const [flag, values] of Object.entries(site.choices)) {
    for (const v of values) form.elements[flag].append(new Option(v, v));
  }
}

function about() {
  const known = site.models.find((m) => m.name === form.elements.model.value.trim());
  $("about").textContent = known ? known.summary : "";
}

async function start() {
  if (location.protocol === "file:") {
    fail("A browser runs this page only from a server: python3 -m http.server, in its folder, then http://localhost:8000.");
    return;
  }
  site = await (await fetch("data.json")).json();
  fill();
  const missing = fromLink();
  about();
  let soon;
  const later = () => { about(); clearTimeout(soon); soon = setTimeout(ask, 250); };
  form.addEventListener("input", (e) => { if (e.target.id !== "file") later(); });
  form.addEventListener("submit", (e) => { e.preventDefault(); clearTimeout(soon); about(); ask(); });
  form.addEventListener("reset", () => { files.clear(); showFiles(); location.hash = ""; setTimeout(() => { fromLink(); later(); }); });
  addEventListener("hashchange", () => { fromLink(); about(); ask(); });
  $("file").addEventListener("change", () => { addFiles([...$("file").files]); $("file").value = ""; });
  const drop = $("drop");
  for (const kind of ["dragover", "dragleave", "drop"]) addEventListener(kind, (e) => {
    e.preventDefault();
    drop.classList.toggle("over", kind === "dragover");
    if (kind === "drop") addFiles([...e.dataTransfer.files]);
  });
  for (const b of document.querySelectorAll("[data-copy]")) b.onclick = () => copy($(b.dataset.copy).textContent, "the command");
  for (const b of document.querySelectorAll("[data-verb]")) b.onclick = () => more(b.dataset.verb);
  $("link").onclick = () => copy(location.href, "the link");
  $("json").onclick = save;
  if (missing.length) { busy(""); fail(`This question is about ${missing.join(", ")}: choose the file again, since links hold no files.`); return; }
  ask();
}
start().catch((e) => fail(e.message));
