// @ts-check
/** What is shown if the server gives no document. */

import { html } from "./html.js";
import { address, changed } from "./router.js";
import { refusal, reload, retryNow, route } from "./state.js";
import { Empty, Skeleton } from "./view-parts.js";

/** @import { ApiError } from "./api.js" */
/** @import { Children } from "./html.js" */

/** @type {Readonly<Record<string, { list: "nodes" | "jobs" | "sessions" | "rooms", why: string }>>} */
const GONE = {
  node: { list: "nodes", why: "It may have been removed, or it fell silent and was swept." },
  job: { list: "jobs", why: "Records of jobs are kept for a limited time." },
  session: { list: "sessions", why: "It may have been closed, or it has expired." },
  room: { list: "rooms", why: "It may have been closed, or nobody was in it for too long." },
};

/** @param {{ error: ApiError }} props */
export function Refused({ error }) {
  const { view, id } = route.value;
  const gone = GONE[view];
  if (error.status === 404 && gone !== undefined) {
    return html`<h1 tabindex="-1">${id}</h1>
      <${Empty} title=${`There is no ${view} ${id}.`} name="gone">
        <p>${gone.why}</p>
        <p><a href=${address(gone.list)}>${`All ${gone.list}`}</a></p>
      <//>`;
  }
  return html`<h1 tabindex="-1">No data</h1>
    <${RefusedBox} error=${error} />`;
}

/**
 * The rows of a list, or why there are none. The fields of its filters stay: somebody may be typing
 * in one of them.
 *
 * @param {{ document: object | undefined, children: Children }} props
 */
export function ListBody({ document, children }) {
  const error = refusal.value;
  if (error !== null && (document === undefined || error.status < 500)) {
    return html`<${RefusedBox} error=${error} />`;
  }
  return document === undefined ? html`<${Skeleton} rows=${12} />` : children;
}

/** @param {{ error: ApiError }} props */
function RefusedBox({ error }) {
  // The message may have been made of the fields.
  const fields = Object.entries(error.fields).filter(([, text]) => !error.message.includes(text));
  const none = Object.fromEntries(Object.keys(route.value.query).map((name) => [name, undefined]));
  return html`<div class="empty" role="alert" data-role="refused" data-reason=${error.reason}>
    <p class="empty-title">${error.message}</p>
    ${
      fields.length > 0 &&
      html`<ul>
        ${fields.map(([name, text]) => html`<li key=${name}><b>${name}</b> ${text}</li>`)}
      </ul>`
    }
    ${
      error.status === 400
        ? html`<p><a class="button" href=${changed(route.value, none)}>Remove all filters</a></p>`
        : html`<p class="muted">The console tries again by itself.</p>
            <button type="button" class="button" onClick=${error.status === 0 ? retryNow : reload}>
              Try now
            </button>`
    }
  </div>`;
}
