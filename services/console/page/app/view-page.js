// @ts-check
/** Chooses the view, and what is shown instead of it. */

import { html } from "./html.js";
import { me, refusal, route, shown } from "./state.js";
import { Instances } from "./view-instances.js";
import { Job } from "./view-job.js";
import { Jobs } from "./view-jobs.js";
import { Node } from "./view-node.js";
import { Nodes } from "./view-nodes.js";
import { Overview } from "./view-overview.js";
import { Empty, Skeleton } from "./view-parts.js";
import { Refused } from "./view-refused.js";
import { Room } from "./view-room.js";
import { Rooms } from "./view-rooms.js";
import { Session } from "./view-session.js";
import { Sessions } from "./view-sessions.js";
import { Shell } from "./view-shell.js";
import { SignIn } from "./view-sign-in.js";

/** @import { ApiError } from "./api.js" */
/** @import { View } from "./router.js" */

/** @type {Partial<Record<View, (props: { document: any }) => unknown>>} */
const VIEWS = {
  ...{ overview: Overview, nodes: Nodes, node: Node, jobs: Jobs, job: Job },
  ...{ sessions: Sessions, session: Session, rooms: Rooms, room: Room, instances: Instances },
};

/** Lists have their own form while they load: filters can be used at once. */
const LISTS = ["nodes", "jobs", "sessions", "rooms"];

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
  const isList = LISTS.includes(view);
  if (error !== null && (me.value === null || (!isList && replaces(error)))) {
    return html`<${Refused} error=${error} />`;
  }
  const document = shown.value?.document;
  if (document === undefined && (me.value === null || !isList)) {
    return html`<${Loading} view=${view} />`;
  }
  return html`<${Chosen} document=${document} key=${`${view}/${route.value.id}`} />`;
}

/** Whether an error takes the place of what is shown: old rows are better than none. @param {ApiError} error */
function replaces(error) {
  return shown.value === null || error.status < 500;
}

/** @param {{ view: View }} props */
function Loading({ view }) {
  const title = { overview: "Overview", instances: "Instances" }[/** @type {string} */ (view)];
  return html`<h1 tabindex="-1">${title ?? (route.value.id || "Loading")}</h1>
    <${Skeleton} cards=${view === "overview" ? 8 : 0} rows=${view === "overview" ? 6 : 10} />`;
}
