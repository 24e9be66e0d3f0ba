// @ts-check
/** When the user taps, looks away, or leaves the page. */

/**
 * @typedef {object} PageListener
 * @property {() => void} onGesture a tap or a key: browsers make no sound before.
 * @property {() => void} onBlur another window has the keyboard: a key that is held is not released.
 * @property {() => void} onHidden the tab is in the background: the microphone goes off.
 * @property {() => void} onLeave the page is left.
 */

/** @param {PageListener} listener */
export function watchPage({ onGesture, onBlur, onHidden, onLeave }) {
  for (const gesture of ["pointerup", "keydown", "click", "touchend"]) {
    addEventListener(gesture, onGesture, { capture: true, passive: true });
  }
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      onHidden();
    }
  });
  addEventListener("blur", onBlur);
  addEventListener("pagehide", onLeave);
}
