// Removes a folder of compiled files, so that none of a deleted source stays behind.
import { rmSync } from "node:fs";

for (const folder of process.argv.slice(2)) {
  rmSync(folder, { recursive: true, force: true });
}
