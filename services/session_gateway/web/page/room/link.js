// @ts-check
/**
 * Links to a room. The room and its token are in the fragment of the address, which browsers send to
 * no server, so they are in no log. No I/O.
 */

/** @import { Invitation, Role } from "./types.js" */

const ROOM = /^[A-Za-z0-9._-]{1,128}$/;
/** As tokens of rooms are, and short enough for a link. */
const TOKEN = /^[A-Za-z0-9._~+-]{1,512}$/;

/** Where the page is. */
export const PATH = "/room";

/**
 * @param {string} hash the fragment of an address, with its "#".
 * @returns {Invitation | null} null if it names no room. The token is empty if it has none.
 */
export function invitationIn(hash) {
  const fields = new URLSearchParams(hash.slice(1));
  const roomId = fields.get("room") ?? "";
  const token = fields.get("token") ?? "";
  if (!ROOM.test(roomId)) {
    return null;
  }
  const role = fields.get("role") === "speaker" ? "speaker" : "listener";
  return { roomId, token: TOKEN.test(token) ? token : "", role };
}

/**
 * What somebody pastes: a whole link, or only its fragment.
 *
 * @param {string} pasted
 * @returns {Invitation | null} null if it is no link to a room.
 */
export function invitationOf(pasted) {
  const at = pasted.indexOf("#");
  const found = at < 0 ? null : invitationIn(pasted.slice(at).trim());
  return found === null || found.token === "" ? null : found;
}

/**
 * @param {string} origin
 * @param {Pick<Invitation, "roomId" | "token">} invitation
 * @param {Role} role
 */
export function linkTo(origin, { roomId, token }, role) {
  const more = role === "speaker" ? "&role=speaker" : "";
  return `${origin}${PATH}#room=${roomId}&token=${token}${more}`;
}

/**
 * Whether others can open links to this host: not if it is a name for one's own machine.
 *
 * @param {string} hostname
 */
export function isReachable(hostname) {
  return !/^(localhost|127\.[0-9.]+|\[::1\])$/.test(hostname);
}
