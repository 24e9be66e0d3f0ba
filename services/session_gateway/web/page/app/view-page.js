// @ts-check
/** The page around the two halves: state of the connection, switches, problems, the token. */

import { Component, createRef, html } from "./html.js";
import * as icons from "./icons.js";
import { INTERFACES, reasonText, textsOf } from "./texts.js";
import { Half } from "./view-half.js";

/** @import { Controller } from "./controller.js" */
/** @import { Text } from "./texts.js" */
/** @import { Interface, State } from "./types.js" */

/**
 * @typedef {object} PageProps
 * @property {State} state
 * @property {boolean} narrow whether the halves are above each other.
 * @property {Controller} controller
 */

/** @param {PageProps} props */
export function Page({ state, narrow, controller }) {
  const text = textsOf(state.interface);
  const rotated = narrow !== state.turned;
  return html`
    <${Bar} ...${{ state, text, rotated, controller }} />
    ${state.problem !== null && html`<${Alert} ...${{ state, text, controller }} />`}
    <${Half} side="a" rotated=${false} ...${{ state, controller }} />
    <${Half} side="b" ...${{ state, rotated, controller }} />
    <${TokenDialog} ...${{ state, text, controller }} />
  `;
}

/** @param {{ state: State, text: Text, rotated: boolean, controller: Controller }} props */
function Bar({ state, text, rotated, controller }) {
  const { connection, handsFree } = state;
  return html`<header class="bar" lang=${state.interface}>
    <h1 class="visually-hidden">${text("page.title")}</h1>
    <p class="connection" data-role="connection" data-state=${connection} role="status">
      <span class="dot" aria-hidden="true"></span>
      <span>${text(`connection.${connection}`)}</span>
    </p>
    <button
      type="button"
      class="switch"
      data-action="hands-free"
      aria-pressed=${handsFree}
      title=${text("page.handsFree")}
      onClick=${() => controller.setHandsFree(!handsFree)}
    >
      ${icons.hands()}<span class="switch-name">${text("page.handsFree")}</span>
    </button>
    <button
      type="button"
      class="switch"
      data-action="turn"
      aria-pressed=${rotated}
      aria-label=${text("page.turn")}
      title=${text("page.turn")}
      onClick=${() => controller.turn()}
    >
      ${icons.turn()}
    </button>
    <span class="interface">
      ${icons.globe()}
      <select
        data-action="interface"
        aria-label=${text("page.interface")}
        value=${state.interface}
        onChange=${(/** @type {Event} */ event) => {
          const { value } = /** @type {HTMLSelectElement} */ (event.currentTarget);
          controller.setInterface(/** @type {Interface} */ (value));
        }}
      >
        ${INTERFACES.map(
          ([code, name]) =>
            html`<option value=${code} lang=${code} selected=${code === state.interface}>
              ${name}
            </option>`,
        )}
      </select></span
    >
  </header>`;
}

/** @param {{ state: State, text: Text, controller: Controller }} props */
function Alert({ state, text, controller }) {
  const { reason, detail } = state.problem ?? { reason: "", detail: "" };
  const isLost = state.connection === "lost";
  const needsToken = reason === "UNAUTHENTICATED" || reason === "PERMISSION_DENIED";
  return html`<div class="alert" role="alert" data-reason=${reason} lang=${state.interface}>
    ${icons.warning()}
    <div class="alert-words">
      <p>${reasonText(text, "problem", reason)}</p>
      ${
        detail !== "" &&
        html`<details>
          <summary>${text("page.detail")}</summary>
          <p lang="en">${detail}</p>
        </details>`
      }
    </div>
    <div class="alert-tools">
      ${
        needsToken &&
        html`<button type="button" data-action="token" onClick=${() => controller.askToken()}>
          ${text("token.title")}
        </button>`
      }
      ${
        isLost && !needsToken
          ? html`<button type="button" data-action="restart" onClick=${() => controller.restart()}>
              ${text("page.restart")}
            </button>`
          : html`<button type="button" data-action="dismiss" onClick=${() => controller.dismiss()}>
              ${text("page.dismiss")}
            </button>`
      }
    </div>
  </div>`;
}

/** @extends {Component<{ state: State, text: Text, controller: Controller }>} */
class TokenDialog extends Component {
  #dialog = /** @type {import("preact").RefObject<HTMLDialogElement>} */ (createRef());
  #input = /** @type {import("preact").RefObject<HTMLInputElement>} */ (createRef());

  #sync() {
    const dialog = this.#dialog.current;
    const { token } = this.props.state;
    if (dialog === null || dialog.open === (token !== "")) {
      return;
    }
    if (token === "") {
      dialog.close();
      if (this.#input.current !== null) {
        this.#input.current.value = "";
      }
    } else {
      dialog.showModal();
    }
  }

  /** @override */
  componentDidMount() {
    this.#sync();
  }

  /** @override */
  componentDidUpdate() {
    this.#sync();
  }

  /** @override */
  render() {
    const { state, text, controller } = this.props;
    const why = state.token === "" ? "needed" : state.token;
    return html`<dialog
      data-role="token"
      lang=${state.interface}
      aria-labelledby="token-title"
      ref=${this.#dialog}
      onCancel=${(/** @type {Event} */ event) => {
        event.preventDefault();
        controller.leaveToken();
      }}
    >
      <form
        onSubmit=${(/** @type {Event} */ event) => {
          event.preventDefault();
          void controller.useToken(this.#input.current?.value ?? "");
        }}
      >
        <h2 id="token-title">${text("token.title")}</h2>
        <p id="token-why" class=${why === "refused" ? "refused" : ""} role="status">
          ${text(`token.${why}`)}
        </p>
        <label for="token-input">${text("token.label")}</label>
        <input
          id="token-input"
          name="token"
          type="password"
          autocomplete="off"
          autocapitalize="off"
          spellcheck=${false}
          maxlength="8192"
          required
          aria-describedby="token-why token-note"
          ref=${this.#input}
        />
        <p id="token-note" class="token-note">${text("token.note")}</p>
        <button type="submit" data-action="use-token" disabled=${why === "checking"}>
          ${text("token.use")}
        </button>
      </form>
    </dialog>`;
  }
}
