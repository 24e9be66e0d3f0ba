// @ts-check
/** Addresses of views, and of the documents that they show. Pure: no window, no history. */

/**
 * @typedef {"overview" | "nodes" | "node" | "jobs" | "job" | "sessions" | "session" | "rooms"
 *   | "room" | "instances" | "sign-in" | "unknown"} View
 * @typedef {Readonly<Record<string, string>>} Query
 *
 * @typedef {object} Route
 * @property {View} view
 * @property {string} id of the node, job, session or room; "" for other views.
 * @property {Query} query only parameters that the view knows, and that are not empty.
 */

/** Rows of a page. */
export const LIMIT = 50;
/** Longer values are cut: the server refuses them. */
const MAX_CHARS = 300;

/** @typedef {{ path: string, params: readonly string[], sent: readonly string[] }} Place */

const PAGED = ["sort", "desc", "page"];
const NODE_FILTERS = ["search", "health", "src", "tgt"];
const JOB_FILTERS = [
  ...["search", "state", "error", "src", "tgt", "node", "session", "tenant"],
  ...["from_ms", "to_ms"],
];
const SESSION_FILTERS = ["search", "tenant", "state"];
const ROOM_FILTERS = ["search", "tenant", "language"];

/**
 * `params` are those of the address; `sent` those that the server gets.
 *
 * @type {Readonly<Record<Exclude<View, "unknown">, Place>>}
 */
const PLACES = {
  overview: { path: "/", params: ["kind", "src", "tgt"], sent: ["kind"] },
  nodes: { path: "/nodes", params: [...NODE_FILTERS, ...PAGED], sent: NODE_FILTERS },
  node: { path: "/nodes/", params: [], sent: [] },
  jobs: { path: "/jobs", params: [...JOB_FILTERS, ...PAGED], sent: JOB_FILTERS },
  job: { path: "/jobs/", params: [], sent: [] },
  sessions: { path: "/sessions", params: [...SESSION_FILTERS, ...PAGED], sent: SESSION_FILTERS },
  session: { path: "/sessions/", params: ["page"], sent: [] },
  rooms: { path: "/rooms", params: [...ROOM_FILTERS, ...PAGED], sent: ROOM_FILTERS },
  room: { path: "/rooms/", params: ["page"], sent: [] },
  instances: { path: "/instances", params: ["search", "differences"], sent: [] },
  "sign-in": { path: "/sign-in", params: ["next"], sent: [] },
};

/** @type {readonly (readonly [prefix: string, view: "node" | "job" | "session" | "room"])[]} */
const DETAILS = [
  ["/nodes/", "node"],
  ["/jobs/", "job"],
  ["/sessions/", "session"],
  ["/rooms/", "room"],
];

/**
 * @param {string} pathname
 * @param {string} search with or without the question mark.
 * @returns {Route}
 */
export function parse(pathname, search) {
  const { view, id } = placeOf(pathname);
  /** @type {Record<string, string>} */
  const query = {};
  if (view !== "unknown") {
    const given = new URLSearchParams(search);
    for (const name of PLACES[view].params) {
      const value = (given.get(name) ?? "").slice(0, MAX_CHARS);
      if (value !== "") {
        query[name] = value;
      }
    }
  }
  return { view, id, query };
}

/**
 * @param {string} pathname
 * @returns {{ view: View, id: string }}
 */
function placeOf(pathname) {
  for (const [prefix, view] of DETAILS) {
    const rest = pathname.startsWith(prefix) ? pathname.slice(prefix.length) : "";
    if (rest !== "" && !rest.includes("/")) {
      const id = decoded(rest);
      return id === "" ? { view: "unknown", id: "" } : { view, id };
    }
  }
  const path = pathname.length > 1 ? pathname.replace(/\/$/, "") : pathname;
  for (const [view, place] of Object.entries(PLACES)) {
    if (place.path === path && !DETAILS.some(([prefix]) => prefix === path)) {
      return { view: /** @type {View} */ (view), id: "" };
    }
  }
  return { view: "unknown", id: "" };
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

/**
 * The address of a view. Parameters that are empty or undefined are left out.
 *
 * @param {Exclude<View, "unknown">} view
 * @param {string} [id]
 * @param {Readonly<Record<string, string | number | undefined>>} [query]
 */
export function address(view, id = "", query = {}) {
  const { path, params } = PLACES[view];
  return path + encodeURIComponent(id) + suffix(params, query);
}

/**
 * The same view with other parameters. Whatever changes, the first page follows, unless a page is
 * given.
 *
 * @param {Route} route
 * @param {Readonly<Record<string, string | number | undefined>>} changes
 */
export function changed(route, changes) {
  if (route.view === "unknown") {
    return "/";
  }
  return address(route.view, route.id, { ...route.query, page: undefined, ...changes });
}

/**
 * What to ask of the server: the address of the document that a view shows, without "/api/v1/"; ""
 * if it shows none.
 *
 * @param {Route} route
 */
export function documentOf(route) {
  const { view, id, query } = route;
  if (view === "unknown" || view === "sign-in") {
    return "";
  }
  const { path, params, sent } = PLACES[view];
  const base = view === "overview" ? "overview" : path.slice(1) + encodeURIComponent(id);
  /** @type {Record<string, string | number | undefined>} */
  const asked = Object.fromEntries(sent.map((name) => [name, query[name]]));
  /** @type {string[]} */
  const names = [...sent];
  if (params.includes("page")) {
    const page = pageOf(query);
    Object.assign(asked, {
      sort: query["sort"],
      desc: query["desc"],
      offset: page > 1 ? (page - 1) * LIMIT : undefined,
    });
    names.push("sort", "desc", "offset");
  }
  return base + suffix(names, asked);
}

/** The page of a list, from 1. @param {Query} query */
export function pageOf(query) {
  const page = Number(query["page"] ?? 1);
  return Number.isInteger(page) && page >= 1 && page <= 1e6 ? page : 1;
}

/**
 * Where to go after signing in: an address of this site, whatever the parameter says.
 *
 * @param {Query} query
 */
export function nextOf(query) {
  const next = query["next"] ?? "/";
  // A browser takes "//host" and "/\host" as another site.
  const isLocal = /^\/(?![/\\])/.test(next);
  return isLocal && !next.startsWith("/sign-in") ? next : "/";
}

/**
 * @param {readonly string[]} names in this order.
 * @param {Readonly<Record<string, string | number | undefined>>} values
 */
function suffix(names, values) {
  const query = new URLSearchParams();
  for (const name of names) {
    const value = values[name];
    if (value !== undefined && value !== "") {
      query.set(name, String(value));
    }
  }
  const text = query.toString();
  return text === "" ? "" : `?${text}`;
}
