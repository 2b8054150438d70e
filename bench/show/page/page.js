"use strict";
(() => {
const units = ["B", "KiB", "MiB", "GiB", "TiB"];
function size(n) {
  let i = 0;
  while (Math.abs(n) >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return (i ? n.toFixed(2) : n) + " " + units[i];
}
const css = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const swatches = ["weights", "buffers", "gradients", "optimizer", "activations", "batch", "temporaries", "workspace", "pools"];
let colors = [], ink, dim, line, card, track, bad;
function readColors() {
  colors = swatches.map(css);
  [ink, dim, line, card, track, bad] = ["ink", "dim", "line", "card", "track", "bad"].map(css);
}
let printing = false;
// fit makes a canvas as sharp as the screen, or paper, and returns its context
// and width.
function fit(canvas, height) {
  const ratio = printing ? 4 : window.devicePixelRatio || 1, width = canvas.parentNode.clientWidth;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = height + "px";
  const g = canvas.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.font = "12px system-ui, sans-serif";
  return [g, width];
}
function place(tip, box, x, y) {
  tip.hidden = false;
  const left = Math.max(0, Math.min(x + 14, box.clientWidth - tip.offsetWidth));
  tip.style.left = (x + 14 + tip.offsetWidth > box.clientWidth ? Math.max(0, x - 14 - tip.offsetWidth) : left) + "px";
  tip.style.top = Math.max(0, y - tip.offsetHeight - 8) + "px";
}
// say fills a tip: the first line is bold.
function say(tip, lines) {
  tip.replaceChildren(...lines.filter(Boolean).map((text, i) => {
    const e = document.createElement(i ? "span" : "b");
    e.textContent = text;
    return e;
  }));
}

// ---- timeline: memory over events, stacked by class ----
function timeline(section, data) {
  const classes = data.classes.length, n = data.events.length;
  const sums = new Float64Array((n + 1) * classes); // after each event; row 0 is the start
  const totals = new Float64Array(n + 1);
  const reserved = new Float64Array(n + 1);
  for (let c = 0; c < classes; c++) { sums[c] = data.start[c]; totals[0] += data.start[c]; }
  for (let i = 0; i < n; i++) {
    const e = data.events[i], b = e < 0 ? -1 - e : e, sign = e < 0 ? -1 : 1;
    for (let c = 0; c < classes; c++) sums[(i + 1) * classes + c] = sums[i * classes + c];
    sums[(i + 1) * classes + data.class[b]] += sign * data.bytes[b];
    totals[i + 1] = totals[i] + sign * data.bytes[b];
  }
  for (let r = 0, i = 0; i < n; i++) {
    while (r < data.reserved.length && data.reserved[r][0] <= i) r++;
    reserved[i + 1] = r ? data.reserved[r - 1][1] : 0;
  }
  reserved[0] = reserved[1] || 0;
  // A page with two steps draws both to one scale.
  const top = 1.06 * Math.max(data.scale || 0, reserved.reduce((a, b) => Math.max(a, b), 0), totals.reduce((a, b) => Math.max(a, b), 0)) || 1;

  const box = section.querySelector(".timeline"), chart = box.querySelector("canvas"), tip = box.querySelector(".tip");
  const text = section.querySelector(".live");
  const height = 320, headroom = 24, footroom = 20, gutter = 62;
  let from = 0, to = n, cursor = -1, lanes = [];

  function drawTimeline() {
    const [g, width] = fit(chart, height), plot = Math.max(50, width - gutter), depth = height - headroom - footroom;
    const view = {
      g, width, plot,
      x: i => gutter + plot * (i - from) / (to - from),
      y: v => headroom + depth * (1 - v / top),
    };
    g.fillStyle = card; g.fillRect(0, 0, width, height);
    shadePhases(view);
    stackClasses(view);
    drawLevels(view);
    labelAxis(view);
    labelPhases(view);
    markPeak(view);
    markCursor(view);
  }
  // visible is the stretch of a phase that is in sight, in pixels.
  function visible(p, {x, width}) { return [Math.max(x(p.from), gutter), Math.min(x(p.to), width)]; }
  function shadePhases(view) {
    const {g} = view;
    data.phases.forEach((p, i) => {
      const [a, b] = visible(p, view);
      if (b > a && i % 2 === 0) { g.fillStyle = track; g.fillRect(a, 0, b - a, height - footroom); }
    });
  }
  // Each pixel shows the event with the most memory in it, so that no peak is lost.
  function stackClasses({g, plot, y}) {
    lanes = new Int32Array(plot);
    for (let px = 0; px < plot; px++) {
      const lo = Math.floor(from + (to - from) * px / plot), hi = Math.max(lo + 1, Math.floor(from + (to - from) * (px + 1) / plot));
      let best = lo;
      for (let i = lo; i < hi && i < n; i++) if (totals[i + 1] > totals[best + 1]) best = i;
      lanes[px] = Math.min(best, n - 1);
    }
    const last = new Float64Array(plot);
    for (let c = 0; c < classes; c++) {
      g.fillStyle = colors[c];
      for (let px = 0; px < plot; px++) {
        const v = sums[(lanes[px] + 1) * classes + c], bottom = y(last[px]);
        last[px] += v;
        if (v > 0) g.fillRect(gutter + px, y(last[px]), 1.05, bottom - y(last[px]));
      }
    }
  }
  // drawLevels draws the reserved memory and the GPU's limit, dashed.
  function drawLevels({g, width, plot, y}) {
    g.strokeStyle = ink; g.setLineDash([4, 3]); g.beginPath();
    for (let px = 0; px < plot; px++) { const v = y(reserved[lanes[px] + 1]); px ? g.lineTo(gutter + px, v) : g.moveTo(gutter, v); }
    g.stroke();
    if (data.limit < top) { g.strokeStyle = bad; g.beginPath(); g.moveTo(gutter, y(data.limit)); g.lineTo(width, y(data.limit)); g.stroke(); }
    g.setLineDash([]);
  }
  function labelAxis({g, y}) {
    g.fillStyle = dim; g.textAlign = "right";
    let step = 2 ** 20;
    while (top / step > 6) step *= 2;
    for (let v = 0; v <= top; v += step) { g.fillText(size(v).replace(".00", ""), gutter - 6, y(v) + 4); }
    g.textAlign = "left";
    g.fillText("allocations and frees " + (from + 1) + "–" + to + ", dashed: reserved" + (data.limit < top ? ", red: the GPU's limit" : ""), gutter, height - 5);
  }
  function labelPhases(view) {
    const {g} = view;
    g.textAlign = "left"; g.fillStyle = ink;
    // Names that their phase has no room for stand a line below, as near as they fit.
    let free = gutter, below = gutter;
    for (const p of data.phases) {
      const [a, b] = visible(p, view), w = g.measureText(p.name).width;
      if (b <= a) continue;
      if (b - a - 4 > w && a + 4 >= free) { g.fillText(p.name, a + 4, 14); free = a + w + 10; }
      else {
        const at = Math.min(Math.max(a, below), view.width - w - 2);
        if (at < below || at > b) continue;
        g.fillText(p.name, at, 27); below = at + w + 8;
      }
    }
  }
  function markPeak({g, width, x, y}) {
    if (data.peak < from || data.peak >= to) return;
    const at = x(data.peak + 0.5), v = y(totals[data.peak + 1]);
    g.strokeStyle = g.fillStyle = ink;
    g.beginPath(); g.moveTo(at, headroom - 6); g.lineTo(at, height - footroom); g.stroke();
    g.beginPath(); g.moveTo(at, v); g.lineTo(at - 5, v - 9); g.lineTo(at + 5, v - 9); g.fill();
    g.textAlign = at > width - 120 ? "right" : "left";
    g.fillText("peak " + size(totals[data.peak + 1]), at + (g.textAlign === "left" ? 8 : -8), v - 6);
  }
  function markCursor({g, x}) {
    if (cursor < from || cursor >= to) return;
    const at = x(cursor + 0.5);
    g.strokeStyle = ink; g.lineWidth = 2; g.beginPath(); g.moveTo(at, headroom); g.lineTo(at, height - footroom); g.stroke(); g.lineWidth = 1;
  }
  function describe(i) {
    const e = data.events[i], b = e < 0 ? -1 - e : e, site = data.sites[data.site[b]];
    const phase = data.phases.find(p => i >= p.from && i < p.to);
    return [
      (e < 0 ? "frees " : "allocates ") + size(data.bytes[b]) + " of " + data.classes[data.class[b]],
      site[0] + (site[1] ? " in " + site[1] : ""),
      (phase ? phase.name + ", " : "") + "event " + (i + 1) + " of " + n,
      size(totals[i + 1]) + " allocated, " + size(reserved[i + 1]) + " reserved" + (i === data.peak ? " (the peak)" : ""),
    ].concat(i === data.peak && data.top ? ["largest then: " + data.top] : []);
  }
  function moveTo(i, aloud) {
    cursor = Math.max(0, Math.min(n - 1, i));
    if (cursor < from || cursor >= to) { const w = to - from; from = Math.max(0, Math.min(n - w, cursor - (w >> 1))); to = from + w; }
    drawTimeline();
    const lines = describe(cursor);
    say(tip, lines);
    const at = gutter + (box.clientWidth - gutter) * (cursor + 0.5 - from) / (to - from);
    place(tip, box, at, headroom + (height - headroom - footroom) * (1 - totals[cursor + 1] / top));
    if (aloud) text.textContent = lines.join("; ");
  }
  function zoom(factor, around) {
    const w = Math.max(Math.min(50, n), Math.min(n, Math.round((to - from) * factor))), share = (around - from) / (to - from);
    from = Math.max(0, Math.min(n - w, Math.round(around - share * w)));
    to = from + w;
    drawTimeline();
  }
  const middle = () => cursor >= from && cursor < to ? cursor : (from + to) / 2;
  if (n > 0) {
    chart.addEventListener("pointermove", e => {
      const px = Math.floor(e.offsetX - gutter);
      if (px >= 0 && px < lanes.length) moveTo(lanes[px], false);
    });
    chart.addEventListener("pointerleave", () => { tip.hidden = true; });
    chart.addEventListener("wheel", e => {
      if (!e.ctrlKey && !e.shiftKey && document.activeElement !== chart) return; // scrolling goes on
      e.preventDefault();
      const at = from + (to - from) * Math.max(0, e.offsetX - gutter) / lanes.length;
      zoom((e.deltaY || e.deltaX) > 0 ? 1.25 : 0.8, at);
    }, {passive: false});
    chart.addEventListener("keydown", e => {
      const hop = e.shiftKey ? Math.max(1, Math.round((to - from) / 20)) : 1;
      const keys = {
        ArrowLeft: () => moveTo(cursor - hop, true), ArrowRight: () => moveTo(cursor + hop, true),
        Home: () => moveTo(0, true), End: () => moveTo(n - 1, true),
        p: () => moveTo(data.peak, true), P: () => moveTo(data.peak, true),
        "+": () => zoom(0.5, middle()), "=": () => zoom(0.5, middle()), "-": () => zoom(2, middle()),
        Escape: () => { tip.hidden = true; cursor = -1; drawTimeline(); },
      };
      if (keys[e.key] && !e.ctrlKey && !e.metaKey && !e.altKey) { e.preventDefault(); keys[e.key](); }
    });
    section.querySelectorAll("[data-do]").forEach(b => b.addEventListener("click", () => ({
      in: () => zoom(0.5, middle()), out: () => zoom(2, middle()),
      fit: () => { from = 0; to = n; drawTimeline(); }, peak: () => moveTo(data.peak, true),
    })[b.dataset.do]()));
  }
  return drawTimeline;
}

// ---- flame view: bytes by module ----
function flameView(section, data) {
  const flame = section.querySelector(".flame"), flameText = section.querySelector(".live");
  let rootPath = [data.flame];
  function drawFlame() {
    const width = flame.clientWidth, root = rootPath[rootPath.length - 1], bars = [];
    let deepest = 0;
    const bar = (node, left, w, depth, path, odd) => {
      if (w < 1.5) return;
      deepest = Math.max(deepest, depth);
      const b = document.createElement("button");
      b.type = "button";
      b.style.cssText = `left:${100 * left / width}%;width:${100 * w / width}%;top:${depth * 22}px;background:${odd ? `color-mix(in srgb, ${colors[node.c]}, white 22%)` : colors[node.c]}`;
      const label = `${node.n}: ${size(node.b)}, ${(100 * node.b / data.flame.b).toFixed(1)} %, mostly ${data.classes[node.c]}`;
      b.title = label;
      b.setAttribute("aria-label", label);
      if (w < 14) b.tabIndex = -1;
      if (w <= 24) b.style.padding = 0;
      else b.textContent = node.n + (w > 160 ? "  " + size(node.b) : "");
      b.addEventListener("click", () => { rootPath = path; drawFlame(); flame.querySelector("button").focus({preventScroll: true}); });
      b.addEventListener("focus", () => { flameText.textContent = path.map(p => p.n).join(" › ") + ": " + label.slice(node.n.length + 2); });
      bars.push(b);
    };
    rootPath.slice(0, -1).forEach((node, i) => bar(node, 0, width, i, rootPath.slice(0, i + 1)));
    // Every other neighbor is lighter, so that they can be told apart.
    const walk = (node, left, w, depth, path, odd) => {
      bar(node, left, w, depth, path, odd);
      (node.k || []).forEach((kid, i) => {
        const share = w * kid.b / (node.b || 1);
        if (share >= 1.5) walk(kid, left, share, depth + 1, path.concat(kid), i % 2 === 1);
        left += share;
      });
    };
    walk(root, 0, width, rootPath.length - 1, rootPath);
    flame.style.height = (deepest + 1) * 22 + "px";
    flame.replaceChildren(...bars);
  }
  flame.addEventListener("keydown", e => {
    if (e.key === "Escape" && rootPath.length > 1) { rootPath.pop(); drawFlame(); flame.querySelector("button").focus(); }
  });
  return drawFlame;
}

// ---- allocator map: segments, blocks, holes ----
function heapMap(section, data) {
  const heap = section.querySelector(".heap"), map = heap.querySelector("canvas"), heapTip = heap.querySelector(".tip");
  const heapText = section.querySelector(".live");
  let blocks = [], chosen = -1;
  function drawHeap() {
    const sizes = data.segments.map(s => s.reduce((a, b) => a + b[0], 0)), all = sizes.reduce((a, b) => a + b, 0);
    if (!all) return;
    const capacity = Math.max(Math.max(...sizes), all / (map.parentNode.clientWidth < 500 ? 22 : 14)), rows = [];
    const spots = sizes.map(s => { // first row with room; segments come the largest first
      let r = rows.findIndex(used => used + s <= capacity);
      if (r < 0) { r = rows.length; rows.push(0); }
      const at = rows[r];
      rows[r] += s;
      return [r, at];
    });
    const pitch = 24, [g, width] = fit(map, rows.length * pitch), scale = width / capacity;
    g.fillStyle = card; g.fillRect(0, 0, width, rows.length * pitch);
    blocks = [];
    data.segments.forEach((segment, s) => {
      const [row, at] = spots[s], y = row * pitch + 2;
      let x = at * scale;
      const start = x;
      for (const [bytes, c, site] of segment) {
        const w = bytes * scale;
        if (c < 0) {
          g.fillStyle = track; g.fillRect(x, y, w, pitch - 4);
          g.save(); g.beginPath(); g.rect(x, y, w, pitch - 4); g.clip(); g.strokeStyle = line; g.beginPath();
          for (let h = x - pitch; h < x + w; h += 6) { g.moveTo(h, y + pitch); g.lineTo(h + pitch, y); }
          g.stroke(); g.restore();
        } else {
          g.fillStyle = colors[c]; g.fillRect(x, y, Math.max(w - (w > 3 ? 0.7 : 0), 0.3), pitch - 4);
        }
        blocks.push({x, y, w, bytes, c, site, segment: s});
        x += w;
      }
      g.strokeStyle = dim; if (x - start > 3) g.strokeRect(start + 0.5, y - 0.5, x - start - 1, pitch - 3);
    });
    if (chosen >= 0) { const b = blocks[chosen]; g.strokeStyle = ink; g.lineWidth = 3; g.strokeRect(b.x, b.y, Math.max(b.w, 2), pitch - 4); g.lineWidth = 1; }
  }
  function showBlock(i, aloud) {
    chosen = Math.max(0, Math.min(blocks.length - 1, i));
    drawHeap();
    const b = blocks[chosen], site = data.sites[b.site] || ["", ""];
    const lines = b.c < 0 ? ["hole of " + size(b.bytes), "in segment " + (b.segment + 1)]
      : [size(b.bytes) + " of " + data.classes[b.c], site[0] + (site[1] ? " in " + site[1] : ""), "in segment " + (b.segment + 1)];
    say(heapTip, lines);
    place(heapTip, heap, b.x + b.w / 2, b.y);
    if (aloud) heapText.textContent = lines.join("; ");
  }
  map.addEventListener("pointermove", e => {
    const i = blocks.findIndex(b => e.offsetX >= b.x && e.offsetX < b.x + b.w && e.offsetY >= b.y && e.offsetY < b.y + 20);
    if (i >= 0) showBlock(i, false); else heapTip.hidden = true;
  });
  map.addEventListener("pointerleave", () => { heapTip.hidden = true; chosen = -1; drawHeap(); });
  map.addEventListener("keydown", e => {
    const hop = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -20, ArrowDown: 20}[e.key];
    if (hop) { e.preventDefault(); showBlock(chosen + hop, true); }
  });
  return drawHeap;
}

// The data of each step lie beside the sections that show it.
const views = {".timeline": timeline, ".flame": flameView, ".heap": heapMap};
const drawings = [...document.querySelectorAll("script.step-data")].flatMap(source => {
  const data = JSON.parse(source.textContent), around = source.parentNode;
  return Object.keys(views).map(name => [views[name], around.querySelector(name)])
    .filter(([, box]) => box).map(([view, box]) => view(box.closest("section"), data));
});
if (!drawings.length) return;
function drawAll() { readColors(); drawings.forEach(draw => draw()); }
drawAll();
let pending = 0;
window.addEventListener("resize", () => { cancelAnimationFrame(pending); pending = requestAnimationFrame(drawAll); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
// On paper everything is open, light, and as wide as the page.
const closed = [];
function onPaper(yes) {
  printing = yes;
  document.documentElement.classList.toggle("paper", yes);
  if (yes) document.querySelectorAll("details:not([open])").forEach(d => { d.open = true; closed.push(d); });
  else closed.splice(0).forEach(d => { d.open = false; });
  drawAll();
}
window.addEventListener("beforeprint", () => onPaper(true));
window.addEventListener("afterprint", () => onPaper(false));
// Milliseconds until all was drawn and on the screen, for tests and the curious.
document.documentElement.dataset.drawn = Math.round(performance.now());
requestAnimationFrame(() => requestAnimationFrame(() => { document.documentElement.dataset.painted = Math.round(performance.now()); }));
})();
