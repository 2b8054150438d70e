// The page without a network. The build puts VERSION, SHELL (files that the page starts with) and DATA (files that some
// questions need) above this line.
"use strict";
const ours = (name) => name.startsWith("vprof-");

async function keep(cache, path, how) {
  if (!await cache.match(path)) await cache.add(new Request(path, {cache: how}));
}

addEventListener("install", (e) => e.waitUntil((async () => {
  const cache = await caches.open(VERSION);
  // The program is large: what the browser has just loaded is taken from its HTTP cache.
  await Promise.all(SHELL.map((path) => keep(cache, path, path === "vprof.bin" ? "default" : "no-cache")));
})()));

addEventListener("activate", (e) => e.waitUntil((async () => {
  for (const name of await caches.keys()) if (ours(name) && name !== VERSION) await caches.delete(name);
  await clients.claim();
})()));

addEventListener("fetch", (e) => {
  if (e.request.method !== "GET" || new URL(e.request.url).origin !== location.origin) return;
  e.respondWith((async () => {
    const cache = await caches.open(VERSION);
    return await cache.match(e.request, {ignoreSearch: true}) ?? fetch(e.request);
  })());
});

addEventListener("message", (e) => {
  if (e.data === "update") skipWaiting();
  if (e.data === "keep") e.waitUntil((async () => {
    const cache = await caches.open(VERSION);
    for (const path of DATA) await keep(cache, path, "default");
    e.source.postMessage("kept");
  })());
});
