/** Light, dark, or as the system has it. */

import { button, relabel } from "./dom.js";

const ORDER = ["system", "light", "dark"];
const KEY = "usd3-studio-theme";

/** A button that goes through the themes; calls `changed` after each change, also of the system's. */
export function themeSwitch(changed) {
  let theme = remembered();
  const element = button("", () => apply(ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length]), { icon: "theme", title: "Theme" });
  const dark = matchMedia("(prefers-color-scheme: dark)");
  function apply(name) {
    theme = name;
    document.documentElement.dataset.theme = name === "system" ? (dark.matches ? "dark" : "light") : name;
    relabel(element, { icon: "theme", title: `Theme: ${name}` });
    try { localStorage.setItem(KEY, name); } catch { /* private windows may have none */ }
    changed();
  }
  dark.addEventListener("change", () => apply(theme));
  apply(theme);
  return element;
}

function remembered() {
  try {
    const theme = localStorage.getItem(KEY);
    return ORDER.includes(theme) ? theme : "system";
  } catch {
    return "system";
  }
}
