// @ts-check
/** Chooses the view, and what is shown instead of it. */

import { html } from "./html.js";
import { address, changed } from "./router.js";
import { me, refusal, reload, retryNow, route, shown } from "./state.js";
import { Instances } from "./view-instances.js";
import { Job } from "./view-job.js";
import { Jobs } from "./view-jobs.js";
import { Node } from "./view-node.js";
import { Nodes } from "./view-nodes.js";
import { Overview } from "./view-overview.js";
import { Empty, Skeleton } from "./view-parts.js";
import { Session } from "./view-session.js";
import { Sessions } from "./view-sessions.js";
import { Shell } from "./view-shell.js";
import { SignIn } from "./view-sign-in.js";

/** @import { ApiError } from "./api.js" */
/** @import { View } from "./router.js" */

/** @type {Partial<Record<View, (props: { document: any }) => unknown>>} */
const VIEWS = {
  ...{ overview: Overview, nodes: Nodes, node: Node, jobs: Jobs, job: Job },
  ...{ sessions: Sessions, session: Session, instances: Instances },
};

/** Lists have their own form while they load: filters can be used at once. */
const LISTS = ["nodes", "jobs", "sessions"];

export function Page() {
  return html`<${Shell}><${Content} /><//>`;
}

function Content() {
  const { view } = route.value;
  if (view === "sign-in") {
    return html`<${SignIn} />`;
  }
  const Chosen = VIEWS[view];
  if (Chosen === undefined) {
    return html`<h1 tabindex="-1">Not found</h1>
      <${Empty} title="This address leads nowhere.">
        <p><a href="/">Go to the overview</a></p>
      <//>`;
  }
  const error = refusal.value;
  if (error !== null && (shown.value === null || error.status === 400 || error.status === 404)) {
    return html`<${Refused} error=${error} />`;
  }
  const document = shown.value?.document;
  if (document === undefined && (me.value === null || !LISTS.includes(view))) {
    return html`<${Loading} view=${view} />`;
  }
  return html`<${Chosen} document=${document} key=${`${view}/${route.value.id}`} />`;
}

/** @param {{ view: View }} props */
function Loading({ view }) {
  const title = { overview: "Overview", instances: "Instances" }[/** @type {string} */ (view)];
  return html`<h1 tabindex="-1">${title ?? (route.value.id || "Loading")}</h1>
    <${Skeleton} cards=${view === "overview" ? 8 : 0} rows=${view === "overview" ? 6 : 10} />`;
}

/** @type {Readonly<Record<string, { list: "nodes" | "jobs" | "sessions", why: string }>>} */
const GONE = {
  node: { list: "nodes", why: "It may have been removed, or it fell silent and was swept." },
  job: { list: "jobs", why: "Records of jobs are kept for a limited time." },
  session: { list: "sessions", why: "It may have been closed, or it has expired." },
};

/** @param {{ error: ApiError }} props */
function Refused({ error }) {
  const { view, id } = route.value;
  const gone = GONE[view];
  if (error.status === 404 && gone !== undefined) {
    return html`<h1 tabindex="-1">${id}</h1>
      <${Empty} title=${`There is no ${view} ${id}.`}>
        <p>${gone.why}</p>
        <p><a href=${address(gone.list)}>${`All ${gone.list}`}</a></p>
      <//>`;
  }
  const fields = Object.entries(error.fields);
  const none = Object.fromEntries(Object.keys(route.value.query).map((name) => [name, undefined]));
  return html`<h1 tabindex="-1">
      ${error.status === 400 ? "These filters do not work" : "No data"}
    </h1>
    <div class="empty" role="alert" data-role="refused" data-reason=${error.reason}>
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
              <button
                type="button"
                class="button"
                onClick=${error.status === 0 ? retryNow : reload}
              >
                Try now
              </button>`
      }
    </div>`;
}
