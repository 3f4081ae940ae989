// The overview: is the broker well, and what needs attention?
import { html } from "../lib.js";
import { get } from "../api.js";
import { byteRate, bytes, count, duration, rate } from "../format.js";
import { href, Link, route, setQuery } from "../router.js";
import { alerts, live, may, me, useData } from "../state.js";
import { Badge, Commands, Empty, Figure, Heading, Loaded } from "../parts/basics.js";
import { Chart } from "../parts/chart.js";

export default function Overview() {
  if (!may("Describe")) {
    const who = me.value?.principal.replace(/^User:/, "");
    return html`<${Heading} title="Overview" />
      <p class="note">${who ? `You are logged in as ${who}.` : "Nobody is logged in."} The state of the broker takes the right Describe on the cluster, which you do not have; the other pages show what you may see.</p>`;
  }
  return html`<${Everything} />`;
}

function Everything() {
  const status = useData(() => get("/v1/status"), [], { every: 5000 });
  return html`<${Heading} title="Overview" loaded=${status} />
    <${Loaded} loaded=${status}>${(found) => html`
      <${State} status=${found} />
      <${AttentionList} found=${alerts.value ?? found.attention} />
      <${Figures} status=${found} now=${live.value} />
      <${Charts} />
      <${Commands} commands=${["sparrow status", "sparrow top", `curl ${location.origin}/v1/status`]} />
    `}<//>`;
}

/** @param {any} props */
function State({ status }) {
  const kind = status.status === "ready" ? "good" : status.status === "degraded" ? "warn" : "bad";
  const words = { ready: "Ready", degraded: "Degraded", "not ready": "Not ready" }[/** @type {string} */ (status.status)];
  return html`<p class="state"><${Badge} kind=${kind}>${words}<//> Version ${status.version}, up for ${duration(status.uptime_ms)}.</p>
    ${status.reasons.map((each) => html`<p class="note bad">${each}</p>`)}`;
}

/** @param {any} each */
function linkOf(each) {
  const to = {
    queue: href(["queues", each.resource, each.kind === "dead_letters" ? "dead-letters" : "records"]),
    webhook: href(["queues", each.resource, "webhooks"]),
    group: href(["groups", each.resource]),
    pipeline: href(["pipelines"]),
    schedule: href(["schedules"]),
  }[/** @type {string} */ (each.resource_type)];
  return to ? html`<${Link} to=${to}>${each.text}<//>` : each.text;
}

/** @param {{found: any[]}} props */
function AttentionList({ found }) {
  return html`<section aria-labelledby="attention"><h2 id="attention">Needs attention</h2>
    ${found.length
      ? html`<ul class="alerts">${found.map((each) => html`<li class=${each.kind}>${linkOf(each)}</li>`)}</ul>`
      : html`<${Empty}>Nothing: no new dead letters, no old jobs, no growing lag, no failing webhook.<//>`}
  </section>`;
}

/** @param {any} props */
function Figures({ status, now }) {
  const rates = now?.rates ?? status.rates;
  const free = now?.free_bytes ?? status.free_bytes;
  const connections = Object.entries(now?.connections ?? status.connections);
  const full = status.full_in_ms >= 0 ? `full in ${duration(status.full_in_ms)} at this rate` : `of ${bytes(status.total_bytes)}`;
  return html`<dl class="figures">
    <${Figure} name="Messages in" value=${rate(rates.messages_in)} note=${byteRate(rates.bytes_in)} />
    <${Figure} name="Messages out" value=${rate(rates.messages_out)} note=${byteRate(rates.bytes_out)} />
    <${Figure} name="Jobs delivered" value=${rate(rates.delivered)} note=${`${rate(rates.acknowledged)} acknowledged`} />
    <${Figure} name="Jobs unfinished" value=${count(now?.unfinished ?? status.unfinished)} to=${href(["queues"])} />
    <${Figure} name="Dead letters" value=${count(now?.dead ?? status.dead)} to=${href(["queues"])} />
    <${Figure} name="Disk free" value=${bytes(free)} note=${full} />
    <${Figure} name="Records on disk" value=${bytes(now?.bytes ?? status.bytes)} note=${`${count(status.topics)} topics, ${count(status.partitions)} partitions`} />
    <${Figure} name="Sync p50 / p99" value=${status.sync_p99_ms < 0 ? "–" : `${duration(status.sync_p50_ms)} / ${duration(status.sync_p99_ms)}`} note=${status.sync_p99_ms < 0 ? "none in the last minute" : "last minute"} />
    <${Figure} name="Connections" value=${count(connections.reduce((sum, [, n]) => sum + Number(n), 0))} to=${href(["connections"])}
      note=${connections.filter(([, n]) => n).map(([name, n]) => `${name} ${n}`).join(", ")} />
  </dl>`;
}

function Charts() {
  const span = route.value.query.span === "24h" ? "24h" : "15m";
  const history = useData(() => get("/v1/history", { span }), [span], { every: span === "15m" ? 5000 : 60000 });
  return html`<section aria-labelledby="history"><div class="heading"><h2 id="history">History</h2>
      <div class="choices" role="group" aria-label="Span">${["15m", "24h"].map((each) => html`<button type="button" class="plain" aria-pressed=${each === span} onClick=${() => setQuery({ span: each === "15m" ? "" : each })}>${each}</button>`)}</div></div>
    <${Loaded} loaded=${history}>${(found) => html`<div class="charts">
      <${Chart} title="Messages per second" times=${found.times_ms} show=${rate}
        series=${[{ name: "in", values: found.series.messages_in }, { name: "out", values: found.series.messages_out }]} />
      <${Chart} title="Bytes per second" times=${found.times_ms} show=${byteRate}
        series=${[{ name: "in", values: found.series.bytes_in }, { name: "out", values: found.series.bytes_out }]} />
      <${Chart} title="Jobs" times=${found.times_ms} show=${count}
        series=${[{ name: "unfinished", values: found.series.unfinished }, { name: "dead", values: found.series.dead }]} />
      <${Chart} title="Time of syncs" times=${found.times_ms} show=${duration}
        series=${[{ name: "p50", values: found.series.sync_p50_ms }, { name: "p99", values: found.series.sync_p99_ms }]} />
    </div>
    <p class="hint">Kept in memory since ${new Date(found.since_ms).toLocaleString()}; a restart of the broker loses it.</p>`}<//>
  </section>`;
}
