/** Keys that work everywhere, and files that are dropped on the page. */

const isTyping = (target) => target.closest("input:not([type=range]), select, textarea, [contenteditable]") !== null;

/** Connect the keys of the whole page. */
export function listenToKeys(studio) {
  document.addEventListener("keydown", (event) => {
    if (!studio.isOpen || document.querySelector("dialog[open]")) return;
    const command = event.ctrlKey || event.metaKey;
    const key = event.key.toLowerCase();
    if (command && key === "enter") {
      studio.draw(event.shiftKey || !studio.hasBegun ? "generate" : "fill");
    } else if (command && (key === "y" || (key === "z" && event.shiftKey))) studio.redo.click();
    else if (command && key === "z") studio.undo.click();
    else if (key === "escape") {
      if (studio.drawing.busy) studio.stop();
      else studio.transport.stop();
      return;
    } else if (event.key === "?" && !isTyping(event.target)) studio.help();
    else return;
    event.preventDefault();
  });
}

/** Load a file that is dropped, where the model reads files. */
export function listenToDrops(studio) {
  const reads = () => studio.isOpen && studio.model.reads.length > 0;
  document.addEventListener("dragover", (event) => {
    if (!reads() || !event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    document.body.classList.add("dropping");
  });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dropping"); });
  document.addEventListener("drop", (event) => {
    document.body.classList.remove("dropping");
    const [file] = event.dataTransfer?.files ?? [];
    if (!file) return;
    event.preventDefault();
    if (reads()) studio.files.load(file);
  });
}
