// @ts-check
/** The page around the two halves: switches and problems. */

import { html } from "./html.js";
import * as icons from "./icons.js";
import { textsOf } from "./texts.js";
import { Half } from "./view-half.js";
import { Alert, Connected, HandsFree, InterfaceChoice, TokenDialog } from "./view-parts.js";

/** @import { Controller } from "./controller.js" */
/** @import { Text } from "./texts.js" */
/** @import { State } from "./types.js" */

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
    ${state.problem !== null && html`<${Trouble} ...${{ state, text, controller }} />`}
    <${Half} side="a" rotated=${false} ...${{ state, controller }} />
    <${Half} side="b" ...${{ state, rotated, controller }} />
    <${TokenDialog} ...${{ token: state.token, shown: state.interface, text, controller }} />
  `;
}

/** @param {{ state: State, text: Text, rotated: boolean, controller: Controller }} props */
function Bar({ state, text, rotated, controller }) {
  const { connection, handsFree } = state;
  return html`<header class="bar" lang=${state.interface}>
    <h1 class="visually-hidden">${text("page.title")}</h1>
    <${Connected} ...${{ connection, text }} />
    <${HandsFree} ...${{ handsFree, text, controller }} />
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
    <${InterfaceChoice} ...${{ shown: state.interface, text, controller }} />
  </header>`;
}

/** @param {{ state: State, text: Text, controller: Controller }} props */
function Trouble({ state, text, controller }) {
  const { problem, connection } = state;
  const reason = problem?.reason ?? "";
  const needsToken = reason === "UNAUTHENTICATED" || reason === "PERMISSION_DENIED";
  return html`<${Alert} ...${{ problem, shown: state.interface, text }}>
    ${
      needsToken &&
      html`<button type="button" data-action="token" onClick=${() => controller.askToken()}>
        ${text("token.title")}
      </button>`
    }
    ${
      connection === "lost" && !needsToken
        ? html`<button type="button" data-action="restart" onClick=${() => controller.restart()}>
            ${text("page.restart")}
          </button>`
        : html`<button type="button" data-action="dismiss" onClick=${() => controller.dismiss()}>
            ${text("page.dismiss")}
          </button>`
    }
  <//>`;
}
