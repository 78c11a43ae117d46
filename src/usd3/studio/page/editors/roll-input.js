/** Mouse, touch and keys on the canvas of the piano roll. One finger uses the tool, two fingers scroll and zoom. */

const MOVED = 4; // pixels from which a touch of the ruler is a drag

/**
 * @param {HTMLCanvasElement} canvas
 * @param {import("./roll-view.js").RollView} view
 * @param {Object} roll what gestures do: `gesture(tool, place)` returns `{move(place), end(), cancel()}`; `seek`,
 *   `select`, `key(pitch)`, `repaint`, `tool()`
 */
export function listen(canvas, view, roll) {
  const pointers = new Map();
  let gesture = null;
  let pinch = null;

  const placeOf = (event) => {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    return { x, y, step: view.stepAt(x), pitch: view.isRest(y) ? null : view.pitchAt(y) };
  };

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button > 2) return;
    canvas.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    const place = placeOf(event);
    pointers.set(event.pointerId, place);
    if (pointers.size === 2) {
      gesture?.cancel();
      gesture = null;
      const { left, top, stepWidth } = view;
      pinch = { places: [...pointers.values()], before: { left, top, stepWidth } };
    } else if (pointers.size === 1) {
      gesture = begin(event, place);
    }
    event.preventDefault();
  });

  function begin(event, place) {
    if (event.button === 1) return pan(place);
    if (place.x < view.keys) {
      if (place.pitch !== null && place.y > view.ruler) roll.key(place.pitch);
      return null;
    }
    if (place.y < view.ruler) return rule(place);
    return roll.gesture(event.button === 2 ? "erase" : roll.tool(), place);
  }

  const pan = (from) => ({
    move: (to) => { view.pan(to.x - from.x, to.y - from.y); from = to; roll.repaint(); }, end() {}, cancel() {},
  });

  /** The ruler: a click seeks, a drag selects. */
  function rule(from) {
    let dragged = false;
    return {
      move: (to) => {
        dragged ||= Math.abs(to.x - from.x) > MOVED;
        if (dragged) roll.select(Math.min(from.step, to.step), Math.max(from.step, to.step) + 1);
      },
      end: () => { if (!dragged) roll.seek(from.step); },
      cancel() {},
    };
  }

  canvas.addEventListener("pointermove", (event) => {
    const place = placeOf(event);
    if (!pointers.has(event.pointerId)) {
      roll.hover(place);
      return;
    }
    pointers.set(event.pointerId, place);
    if (pinch && pointers.size === 2) {
      moved(pinch, [...pointers.values()]);
      roll.repaint();
    } else gesture?.move(place);
  });

  /** Zoom and scroll by all that two fingers have moved: move by move, scrolling at a limit of the zoom would change it. */
  function moved({ places: [a, b], before }, [c, d]) {
    const apart = (p, q) => Math.max(Math.hypot(p.x - q.x, p.y - q.y), 1);
    Object.assign(view, before);
    view.zoom(apart(c, d) / apart(a, b), (a.x + b.x) / 2);
    view.pan((c.x + d.x - a.x - b.x) / 2, (c.y + d.y - a.y - b.y) / 2);
  }

  const release = (event, finish) => {
    if (!pointers.delete(event.pointerId)) return;
    if (pointers.size === 0) pinch = null;
    const ended = gesture;
    gesture = null;
    if (ended) finish(ended);
  };
  canvas.addEventListener("pointerup", (event) => release(event, (ended) => ended.end()));
  canvas.addEventListener("pointercancel", (event) => release(event, (ended) => ended.cancel()));
  canvas.addEventListener("contextmenu", (event) => event.preventDefault());

  canvas.addEventListener("wheel", (event) => {
    const sideways = event.shiftKey ? event.deltaY : event.deltaX;
    const upright = event.shiftKey ? 0 : event.deltaY;
    if (event.ctrlKey || event.metaKey) view.zoom(Math.exp(-event.deltaY / 200), placeOf(event).x);
    else if (sideways !== 0) view.pan(-sideways, 0);
    else {
      const before = view.top;
      view.pan(0, -upright / 2);
      if (view.top === before) return; // let the page scroll
    }
    event.preventDefault();
    roll.repaint();
  }, { passive: false });
}

/** Keys of the roll by name: what each does to `roll`. */
const KEYS = {
  ArrowLeft: (roll, event) => roll.move(-1, 0, event), ArrowRight: (roll, event) => roll.move(1, 0, event),
  ArrowUp: (roll, event) => roll.move(0, 1, event), ArrowDown: (roll, event) => roll.move(0, -1, event),
  Home: (roll) => roll.moveTo(0), End: (roll) => roll.moveTo(Infinity),
  Enter: (roll) => roll.press(), " ": (roll) => roll.press(),
  l: (roll) => roll.toggleLock(), r: (roll) => roll.putRest(), p: (roll) => roll.play(),
  Delete: (roll) => roll.erase(), Backspace: (roll) => roll.erase(),
  "+": (roll) => roll.zoom(1.3), "=": (roll) => roll.zoom(1.3), "-": (roll) => roll.zoom(1 / 1.3),
  "[": (roll) => roll.changeLength(-1), "]": (roll) => roll.changeLength(1),
};

/** Connect the keys. Escape ends a selection, and is left to others where there is none. */
export function listenKeys(canvas, roll) {
  canvas.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && !event.key.startsWith("Arrow")) return;
    if (event.altKey) return;
    const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (act) act(roll, event);
    else if (/^[1-9]$/.test(event.key)) roll.chooseVoice(Number(event.key) - 1);
    else if (event.key === "Escape" && roll.hasSelection()) roll.select(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}
