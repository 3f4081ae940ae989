// Open connections of all listeners.
import { html } from "../lib.js";
import { get, request } from "../api.js";
import { bytes, duration } from "../format.js";
import { route, setQuery } from "../router.js";
import { may, useData } from "../state.js";
import { Action, Commands, Heading, Loaded, Pager } from "../parts/basics.js";
import { Table } from "../parts/table.js";

const LIMIT = 100;

export default function Connections() {
  const skip = Number(route.value.query.skip ?? 0) || 0;
  const loaded = useData((signal) => get("/v1/connections", { limit: LIMIT, skip }, signal), [skip], { every: 2000 });
  const close = async (number) => { await request("DELETE", `/v1/connections/${number}`); await loaded.reload(); };
  return html`<${Heading} title="Connections" loaded=${loaded} />
    <${Loaded} loaded=${loaded}>${(found) => html`
      <${Table} label="Connections" rows=${found.connections} keyOf=${(each) => each.number} columns=${[
        { name: "No.", number: true, cell: (each) => each.number }, { name: "Listener", cell: (each) => each.listener }, { name: "Address", cell: (each) => each.address },
        { name: "Who", cell: (each) => each.principal || "–" }, { name: "Client", wide: true, cell: (each) => each.client || "–" },
        { name: "Open for", number: true, cell: (each) => duration(each.open_ms) }, { name: "Received", number: true, cell: (each) => bytes(each.received_bytes) },
        may("Alter") && { name: "Close", cell: (each) => html`<${Action} kind="plain" aria-label=${`Close connection ${each.number}`} onClick=${() => close(each.number)}>Close<//>` },
      ]} />
      <${Pager} skip=${skip} limit=${LIMIT} total=${found.total} noun="connection" onSkip=${(n) => setQuery({ skip: n || "" })} />`}<//>
    <p class="hint">A closed client usually connects again. Requests of HTTP log in one by one, so their connections have no name.</p>
    <${Commands} commands=${[`curl ${location.origin}/v1/connections`, `curl -X DELETE ${location.origin}/v1/connections/NUMBER`]} />`;
}
