const tag = `"${document.currentScript.dataset.tag}"`;
setInterval(async () => {
  const found = await fetch(location.pathname, { method: "HEAD", cache: "no-store" }).catch(() => null);
  if (found?.ok && found.headers.get("ETag") !== tag) location.reload();
}, 2000);
