/** Addresses of gateways. */

const PATH = "/v1/converse";
const SCHEMES: Readonly<Record<string, string>> = {
  "ws:": "ws:",
  "wss:": "wss:",
  "http:": "ws:",
  "https:": "wss:",
};

/**
 * Returns the WebSocket addresses of equivalent gateways.
 *
 * @param addresses such as "wss://host", "https://host:8443" or a list of these; a path replaces
 *   the default /v1/converse.
 */
export function parseAddresses(addresses: string | readonly string[]): readonly string[] {
  const listed = typeof addresses === "string" ? [addresses] : addresses;
  if (listed.length === 0) {
    throw new RangeError("addresses: must name at least one gateway, such as wss://example.org");
  }
  return listed.map(parseAddress);
}

function parseAddress(address: string): string {
  let url: URL;
  try {
    url = new URL(address);
  } catch {
    throw new RangeError(`addresses: ${JSON.stringify(address)} must be like wss://example.org`);
  }
  const scheme = SCHEMES[url.protocol];
  if (scheme === undefined) {
    throw new RangeError(`addresses: ${url.protocol} must be wss:, ws:, https: or http:`);
  }
  // Addresses end up in logs, so nothing secret may be in them.
  if (url.username !== "" || url.password !== "" || url.search !== "" || url.hash !== "") {
    throw new RangeError("addresses: must have no user, password, query or fragment");
  }
  return `${scheme}//${url.host}${url.pathname === "/" ? PATH : url.pathname}`;
}

/**
 * Returns the HTTP addresses of equivalent gateways, such as "https://example.org".
 *
 * @param url such as "https://host", "wss://host:8443" or a list of these, without a path.
 */
export function parseOrigins(url: string | readonly string[]): readonly string[] {
  return parseAddresses(url).map((address) => {
    const { pathname, origin } = new URL(httpAddress(address));
    if (pathname !== PATH) {
      throw new RangeError(`url: must have no path, and has ${pathname}`);
    }
    return origin;
  });
}

/** The same address for HTTP. */
export function httpAddress(address: string): string {
  return address.replace(/^ws/, "http");
}
