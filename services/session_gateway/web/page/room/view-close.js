// @ts-check
/** Asks before a room is closed for everybody. */

import { Component, createRef, html } from "../app/html.js";

/** @import { ViewProps } from "./view-page.js" */

/** @extends {Component<ViewProps>} */
export class CloseDialog extends Component {
  #dialog = /** @type {import("preact").RefObject<HTMLDialogElement>} */ (createRef());

  #sync() {
    const dialog = this.#dialog.current;
    const { closing } = this.props.state;
    if (dialog === null || dialog.open === closing) {
      return;
    }
    if (closing) {
      dialog.showModal();
    } else {
      dialog.close();
    }
  }

  /** @override */
  componentDidUpdate() {
    this.#sync();
  }

  /** @override */
  render() {
    const { state, text, controller } = this.props;
    return html`<dialog
      data-role="close"
      lang=${state.interface}
      aria-labelledby="close-question"
      ref=${this.#dialog}
      onCancel=${(/** @type {Event} */ event) => {
        event.preventDefault();
        controller.setClosing(false);
      }}
    >
      <h2 id="close-question">${text("close.question")}</h2>
      <p>${text("close.explain")}</p>
      <div class="buttons">
        <button type="button" data-action="keep" onClick=${() => controller.setClosing(false)}>
          ${text("close.cancel")}
        </button>
        <button
          type="button"
          class="danger"
          data-action="confirm-close"
          onClick=${() => void controller.closeRoom()}
        >
          ${text("close.confirm")}
        </button>
      </div>
    </dialog>`;
  }
}
