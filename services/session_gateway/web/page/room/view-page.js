// @ts-check
/** The room page: its bar, what is wrong, and one of its views. */

import { html } from "../app/html.js";
import * as icons from "../app/icons.js";
import { Alert, Connected, HandsFree, InterfaceChoice, TokenDialog } from "../app/view-parts.js";
import { audienceOf, connectionOf } from "./state.js";
import { CloseDialog } from "./view-close.js";
import { Inside } from "./view-inside.js";
import { Lobby } from "./view-lobby.js";
import { Start } from "./view-start.js";

/** @import { Controller } from "./controller.js" */
/** @import { RoomText } from "./texts.js" */
/** @import { State } from "./types.js" */

/** @typedef {{ state: State, text: RoomText, controller: Controller }} ViewProps */

const VIEWS = { start: Start, lobby: Lobby, inside: Inside };

/** @param {ViewProps} props */
export function Page({ state, text, controller }) {
  const all = { state, text, controller };
  return html`
    <${Bar} ...${all} />
    ${state.problem !== null && html`<${Trouble} ...${all} />`}
    <${VIEWS[state.view]} ...${all} />
    <${TokenDialog} ...${{ token: state.token, shown: state.interface, text, controller }} />
    <${CloseDialog} ...${all} />
  `;
}

/** @param {ViewProps} props */
function Bar({ state, text, controller }) {
  const isInside = state.view === "inside";
  const title = isInside ? state.room?.name || text("room.unnamed") : "Lingua";
  return html`<header class="bar" lang=${state.interface}>
    <h1 class="room-name" dir="auto">${title}</h1>
    ${
      isInside &&
      !state.closed &&
      html`<${Connected} connection=${connectionOf(state)} text=${text} />`
    }
    <span class="bar-space"></span>
    ${isInside && html`<${Tools} ...${{ state, text, controller }} />`}
    <${InterfaceChoice} ...${{ shown: state.interface, text, controller }} />
  </header>`;
}

/** @param {ViewProps} props */
function Tools({ state, text, controller }) {
  const { speaks, handsFree, panel, closed } = state;
  return html`
    ${speaks && !closed && html`<${HandsFree} ...${{ handsFree, text, controller }} />`}
    ${
      speaks &&
      !closed &&
      html`<button
        type="button"
        class="switch panel-switch"
        data-action="panel"
        aria-expanded=${panel}
        aria-controls="panel"
        aria-label=${text("panel.open")}
        title=${text("panel.open")}
        onClick=${() => controller.setPanel(!panel)}
      >
        ${icons.people()}<span>${audienceOf(state).listeners}</span>
      </button>`
    }
    ${
      !closed &&
      html`<button
        type="button"
        class="switch"
        data-action="leave"
        title=${text("room.leave")}
        onClick=${() => controller.leave()}
      >
        ${icons.leave()}<span class="leave-name">${text("room.leave")}</span>
      </button>`
    }
  `;
}

/** @param {ViewProps} props */
function Trouble({ state, text, controller }) {
  const { problem, invitation } = state;
  const reason = problem?.reason ?? "";
  const isRefused = reason === "UNAUTHENTICATED" || reason === "PERMISSION_DENIED";
  const needsToken = isRefused && invitation === null;
  const isLost = connectionOf(state) === "lost";
  return html`<${Alert} ...${{ problem, shown: state.interface, text }}>
    ${
      needsToken &&
      html`<button type="button" data-action="token" onClick=${() => controller.askToken()}>
        ${text("token.title")}
      </button>`
    }
    ${
      isLost &&
      html`<button type="button" data-action="again" onClick=${() => void controller.again()}>
        ${text("room.again")}
      </button>`
    }
    ${
      !isLost &&
      !needsToken &&
      html`<button type="button" data-action="dismiss" onClick=${() => controller.dismiss()}>
        ${text("page.dismiss")}
      </button>`
    }
  <//>`;
}
