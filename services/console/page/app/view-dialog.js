// @ts-check
/** Dialogs, and actions that are confirmed in one. */

import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";

import { html } from "./html.js";
import { act, me, tell } from "./state.js";

/** @import { ApiError } from "./api.js" */
/** @import { Children } from "./html.js" */

/**
 * @typedef {object} Action
 * @property {string} name for tests and ids, such as "drain".
 * @property {string} label of the button.
 * @property {string} title the question.
 * @property {readonly string[]} effects what it will do, in sentences.
 * @property {string} undo how to undo it, or that this is not possible.
 * @property {string} target such as "nodes/gpu-1/drain".
 * @property {string} done what to say afterwards.
 * @property {boolean} [danger]
 * @property {boolean} [asksWhy] whether a reason is sent along.
 * @property {string} [unavailable] why it cannot be done now; "" or undefined if it can.
 */

const asked = /** @type {import("@preact/signals").Signal<Action | null>} */ (signal(null));
const busy = signal(false);
const problem = signal("");

/** @param {{ actions: readonly Action[] }} props */
export function Actions({ actions }) {
  const { value } = me;
  const refused = value?.may_act === false;
  return html`<div class="actions">
    ${actions.map((action) => {
      const why = refused ? viewerWords() : (action.unavailable ?? "");
      return html`<button
        key=${action.name}
        type="button"
        class=${action.danger ? "button danger" : "button"}
        data-action=${action.name}
        aria-disabled=${why !== ""}
        aria-describedby=${refused ? "may-not-act" : undefined}
        title=${why}
        onClick=${() => {
          if (why !== "") {
            tell(why);
            return;
          }
          problem.value = "";
          asked.value = action;
        }}
      >
        ${action.label}
      </button>`;
    })}
    ${refused && html`<p id="may-not-act" class="may-not-act">${viewerWords()}</p>`}
  </div>`;
}

function viewerWords() {
  return me.value?.role === "viewer"
    ? "Your token has the role viewer: you may look, but not act."
    : "You may look, but not act: sign in with the token of an operator.";
}

/** The question about the action that was asked for. */
export function ConfirmDialog() {
  const action = asked.value;
  const why = useRef(/** @type {HTMLInputElement | null} */ (null));
  if (action === null) {
    return null;
  }
  const confirm = async () => {
    if (busy.value) {
      return;
    }
    busy.value = true;
    problem.value = "";
    try {
      await act(action.target, action.asksWhy ? { why: why.current?.value.trim() ?? "" } : {});
      asked.value = null;
      tell(action.done);
    } catch (error) {
      problem.value = sentenceOf(/** @type {ApiError} */ (error));
    }
    busy.value = false;
  };
  return html`<${Dialog} name="confirm" title=${action.title} close=${() => (asked.value = null)}>
    <form
      data-action-name=${action.name}
      onSubmit=${(/** @type {Event} */ event) => {
        event.preventDefault();
        void confirm();
      }}
    >
      <ul class="effects">
        ${action.effects.map((effect) => html`<li key=${effect}>${effect}</li>`)}
      </ul>
      <p class="undo">${action.undo}</p>
      ${
        action.asksWhy &&
        html`<label class="field stacked">
          <span class="field-name">Why (optional, for the audit log)</span>
          <input type="text" name="why" maxlength="200" autocomplete="off" ref=${why} />
        </label>`
      }
      ${problem.value !== "" && html`<p class="refused" role="alert">${problem.value}</p>`}
      <div class="dialog-buttons">
        <button
          type="button"
          class="button"
          data-action="dismiss"
          onClick=${() => (asked.value = null)}
        >
          Keep as it is
        </button>
        <button
          type="submit"
          class=${action.danger ? "button primary danger" : "button primary"}
          data-action="confirm"
          disabled=${busy.value}
        >
          ${busy.value ? "Working …" : action.label}
        </button>
      </div>
    </form>
  <//>`;
}

/** @param {ApiError} error */
function sentenceOf(error) {
  const fields = Object.entries(error.fields ?? {}).map(([name, text]) => `${name} ${text}`);
  return [error.message, ...fields].join("; ");
}

/**
 * @param {{ name: string, title: string, close: () => void, children?: Children }} props
 */
export function Dialog({ name, title, close, children }) {
  const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
  // Layout effects end at once: later, the focus may be where somebody types.
  useLayoutEffect(() => {
    const { current } = element;
    const before = document.activeElement;
    current?.showModal();
    return () => {
      current?.close();
      if (before instanceof HTMLElement && before.isConnected) {
        before.focus();
      }
    };
  }, []);
  return html`<dialog
    ref=${element}
    data-role=${name}
    aria-labelledby=${`${name}-title`}
    onCancel=${(/** @type {Event} */ event) => {
      event.preventDefault();
      close();
    }}
    onClick=${(/** @type {MouseEvent} */ event) => {
      // The dialog fills its own box; what is beside it is the backdrop.
      if (event.target === element.current) {
        close();
      }
    }}
  >
    <div class="dialog-body">
      <h2 id=${`${name}-title`}>${title}</h2>
      ${children}
    </div>
  </dialog>`;
}
