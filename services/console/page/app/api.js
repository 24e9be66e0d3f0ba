// @ts-check
/** Requests to the console's server. */

const BASE = "/api/v1/";
const ANSWER_MS = 15_000;

/** The server refused, or did not answer. */
export class ApiError extends Error {
  /**
   * @param {number} status of HTTP; 0 if there was no answer.
   * @param {string} reason a word such as NODE_NOT_FOUND.
   * @param {string} message a sentence.
   * @param {Readonly<Record<string, string>>} fields what is wrong with each parameter.
   */
  constructor(status, reason, message, fields = {}) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.reason = reason;
    this.fields = fields;
  }
}

/** @param {string} path without "/api/v1/". */
export function apiUrl(path) {
  return BASE + path;
}

/**
 * @param {string} path
 * @returns {Promise<unknown>}
 */
export function get(path) {
  return request(path, { headers: { Accept: "application/json" } });
}

/**
 * @param {string} path
 * @param {object} body
 * @param {string} csrf from /api/v1/me; "" before one is signed in.
 * @returns {Promise<unknown>}
 */
export function post(path, body, csrf) {
  /** @type {Record<string, string>} */
  const headers = { Accept: "application/json", "Content-Type": "application/json" };
  if (csrf !== "") {
    headers["X-CSRF-Token"] = csrf;
  }
  return request(path, { method: "POST", headers, body: JSON.stringify(body) });
}

/**
 * @param {string} path
 * @param {RequestInit} init
 * @returns {Promise<unknown>}
 */
async function request(path, init) {
  let response;
  try {
    response = await fetch(apiUrl(path), {
      ...init,
      credentials: "same-origin",
      cache: "no-store",
      redirect: "error",
      signal: AbortSignal.timeout(ANSWER_MS),
    });
  } catch (error) {
    const late = error instanceof DOMException && error.name === "TimeoutError";
    throw new ApiError(
      0,
      "UNREACHABLE",
      `the console ${late ? "takes too long" : "is not reachable"}`,
    );
  }
  if (response.ok) {
    return response.status === 204 ? {} : bodyOf(response);
  }
  throw errorOf(response.status, await bodyOf(response));
}

/**
 * @param {Response} response
 * @returns {Promise<unknown>}
 */
async function bodyOf(response) {
  try {
    /** @type {unknown} */
    const body = await response.json();
    return body;
  } catch {
    return {};
  }
}

/**
 * @param {number} status
 * @param {unknown} body
 */
function errorOf(status, body) {
  const outer = /** @type {Record<string, unknown>} */ (body ?? {});
  const error = /** @type {Record<string, unknown>} */ (outer["error"] ?? outer);
  const { reason, message, fields } = error;
  return new ApiError(
    status,
    typeof reason === "string" ? reason : `HTTP_${status}`,
    typeof message === "string" ? message : `the console answered with status ${status}`,
    /** @type {Record<string, string>} */ (fields ?? {}),
  );
}
