// The theme's button, one place to announce things, and copying that also works from disk.
window.sigmazero = (() => {
  "use strict";
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");

  const data = (name) => {
    const block = document.getElementById(`data-${name}`);
    return block ? JSON.parse(block.textContent) : null;
  };

  const make = (name, properties = {}, ...children) => {
    const { aria = {}, ...rest } = properties;
    const node = Object.assign(document.createElement(name), rest);
    for (const [key, value] of Object.entries(aria)) node.setAttribute(`aria-${key}`, value);
    node.append(...children);
    return node;
  };

  const announce = (text) => {
    const status = document.getElementById("status");
    status.textContent = text;
    status.classList.add("shown");
    clearTimeout(announce.timer);
    announce.timer = setTimeout(() => status.classList.remove("shown"), 2500);
  };

  // A page from disk may have no clipboard, or one that must not be used: then a selection is copied the old way.
  const copyBySelection = (text) => {
    const before = document.activeElement;
    const box = make("textarea", { value: text, className: "off-screen", readOnly: true });
    document.body.append(box);
    box.select();
    const done = document.execCommand("copy");
    box.remove();
    if (before instanceof HTMLElement) before.focus();
    return done;
  };

  const copy = async (text, what) => {
    let done = false;
    try {
      await navigator.clipboard.writeText(text);
      done = true;
    } catch {
      done = copyBySelection(text);
    }
    announce(done ? `Copied ${what}` : `The browser refused to copy ${what}`);
  };

  // Canvases need a colour as the browser computes it, not the expression in the style sheet.
  const colour = (token) => {
    const probe = make("span");
    probe.style.color = `var(--${token})`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };

  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);

  const remembered = () => {
    try {
      return localStorage.getItem("sigmazero-theme");
    } catch {
      return null; // some browsers keep nothing for pages from disk
    }
  };

  const remember = (theme) => {
    try {
      localStorage.setItem("sigmazero-theme", theme);
    } catch {
      // the choice then lasts as long as the page is open
    }
  };

  const button = document.getElementById("theme");
  const show = () => {
    button.setAttribute("aria-pressed", String(isDark()));
    document.dispatchEvent(new Event("themechange"));
  };
  const kept = remembered();
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  if (window.parent !== window) root.dataset.framed = ""; // the page around it has the name and the button
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remember(root.dataset.theme);
    show();
  });
  system.addEventListener("change", show);
  addEventListener("storage", ({ key, newValue }) => {
    if (key !== "sigmazero-theme" || !["dark", "light"].includes(newValue)) return;
    root.dataset.theme = newValue; // chosen in another window, or around this frame
    show();
  });
  show();

  return { data, make, announce, copy, colour, isDark };
})();
