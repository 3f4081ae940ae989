// Who may do what: users, tokens, rules as a matrix, a tester, quotas.
import { html, useState } from "../lib.js";
import { address, describe, get, only, part, post, request } from "../api.js";
import { count, plural, shell } from "../format.js";
import { href, route } from "../router.js";
import { may, useData } from "../state.js";
import { Action, Badge, Commands, Field, Heading, Loaded, Tabs } from "../parts/basics.js";
import { Destroy, Dialog } from "../parts/dialog.js";
import { Table } from "../parts/table.js";

const OPERATIONS = ["Read", "Write", "Create", "Delete", "Alter", "Describe", "DescribeConfigs", "AlterConfigs"];
const RESOURCES = ["Topic", "Group", "Cluster", "TransactionalId"];

export default function Access() {
  const tab = route.value.parts[1] ?? "rules";
  const tabs = [["rules", "Rules"], ["users", "Users"], ["quotas", "Quotas"]].map(([id, name]) => ({ id, name, to: href(id === "rules" ? ["access"] : ["access", id]) }));
  return html`<${Heading} title="Access" /><${Tabs} label="Access" tabs=${tabs} current=${tab} />
    ${tab === "rules" && html`<${Rules} />`}${tab === "users" && html`<${Users} />`}${tab === "quotas" && html`<${Quotas} />`}`;
}

function Rules() {
  const loaded = useData(() => get("/v1/acls"), [], { every: 10000 });
  const [adding, setAdding] = useState(false);
  const [removing, setRemoving] = useState(/** @type {any} */ (null));
  return html`<${Tester} />
    <h2>Who may do what</h2>
    <${Loaded} loaded=${loaded}>${(found) => html`<${Matrix} rules=${found.rules} />
      <h2>Rules</h2>
      <${Table} label="Rules" rows=${found.rules.map((each, i) => ({ ...each, number: i + 1 }))} keyOf=${keyOf} empty="There are no rules: the defaults decide." columns=${[
        { name: "Rule", number: true, cell: (each) => each.number }, { name: "Principal", cell: (each) => each.principal },
        { name: "May", cell: (each) => html`<${Badge} kind=${each.permission === "Allow" ? "good" : "bad"}>${each.permission === "Allow" ? "allow" : "deny"}<//> ${each.operation}` },
        { name: "Resource", wide: true, cell: (each) => `${each.resource_type} ${nameOf(each)}` }, { name: "From", cell: (each) => each.host },
        may("Alter") && { name: "Remove", cell: (each) => html`<button type="button" class="plain" aria-label=${`Remove rule ${each.number}`} onClick=${() => setRemoving(each)}>Remove</button>` },
      ]} />`}<//>
    ${may("Alter") && html`<div class="actions"><button type="button" class="main" onClick=${() => setAdding(true)}>Add rule</button></div>`}
    <${Commands} commands=${["sparrow acl list", `curl ${location.origin}/v1/acls`]} />
    ${adding && html`<${AddRule} onClose=${() => setAdding(false)} reload=${loaded.reload} />`}
    ${removing && html`<${RemoveRule} rule=${removing} onClose=${() => setRemoving(null)} onDone=${async () => { setRemoving(null); await loaded.reload(); }} />`}`;
}

/**
 * A rule is what it says: if it is gone, nothing else is removed instead.
 * @param {any} props
 */
function RemoveRule({ rule: { number, ...rule }, onClose, onDone }) {
  const path = address("/v1/acls", rule);
  const look = async () => {
    const found = await get(path);
    if (!found.rules.length) throw new Error("This rule was removed meanwhile. Nothing was done.");
    return found;
  };
  const run = async () => { await look(); return request("DELETE", path); };
  return html`<${Destroy} title="Remove rule" name=${rule.principal} verb="Remove rule" look=${look} facts=${() => ({})} run=${run} onDone=${onDone} onClose=${onClose}
    loss=${() => html`<p><strong>1 rule</strong>: ${sentence(rule)}</p>`} />`;
}

/** @param {any} rule */
const keyOf = (rule) => [rule.resource_type, rule.name, rule.pattern_type, rule.principal, rule.host, rule.operation, rule.permission].join("|");
const nameOf = (rule) => (rule.pattern_type === "Prefixed" ? `${rule.name}…` : rule.name);
const sentence = (rule) => `${rule.principal} ${rule.permission === "Allow" ? "may" : "may not"} ${rule.operation} ${rule.resource_type} ${nameOf(rule)}.`;

/** @param {{rules: any[]}} props */
function Matrix({ rules }) {
  const principals = [...new Set(rules.map((each) => each.principal))].sort();
  const resources = [...new Set(rules.map((each) => `${each.resource_type} ${nameOf(each)}`))].sort();
  const cell = (who, what) => rules.filter((each) => each.principal === who && `${each.resource_type} ${nameOf(each)}` === what)
    .map((each) => html`<span class=${each.permission === "Allow" ? "yes" : "no"}>${each.permission === "Allow" ? "✓" : "✗ not"} ${each.operation} </span>`);
  if (!rules.length) return null;
  return html`<div class="matrix"><${Table} label="Who may do what" rows=${principals} keyOf=${(each) => each} columns=${[
    { name: "Principal", cell: (each) => html`<strong>${each}</strong>` }, ...resources.map((what) => ({ name: what, cell: (who) => cell(who, what) })),
  ]} /></div>`;
}

function Tester() {
  const [form, setForm] = useState({ principal: "User:", operation: "Read", resource_type: "Topic", name: "" });
  const [answer, setAnswer] = useState(/** @type {any} */ (null));
  const set = (name) => (event) => { setAnswer(null); setForm((old) => ({ ...old, [name]: event.target.value })); };
  const ask = async () => setAnswer(await get("/v1/acls/check", form));
  return html`<h2>May …?</h2><div class="filters">
      <${Field} label="Who"><input value=${form.principal} onInput=${set("principal")} data-search /><//>
      <${Field} label="Does"><select value=${form.operation} onChange=${set("operation")}>${OPERATIONS.map((each) => html`<option>${each}</option>`)}</select><//>
      <${Field} label="To a"><select value=${form.resource_type} onChange=${set("resource_type")}>${RESOURCES.map((each) => html`<option>${each}</option>`)}</select><//>
      <${Field} label="Named"><input value=${form.name} onInput=${set("name")} /><//>
      <div class="actions"><${Action} onClick=${ask} disabled=${!form.name || form.principal.length < 6}>Ask<//></div></div>
    ${answer && html`<p class="note ${answer.allowed ? "" : "bad"}" role="status"><strong>${answer.allowed ? "Yes" : "No"}</strong>: ${answer.rule ? `by the rule “${sentence(answer.rule)}”` : `${answer.because}.`}</p>`}`;
}

/** @param {any} props */
function AddRule({ onClose, reload }) {
  const [form, setForm] = useState({ principal: "User:", operation: "Read", resource_type: "Topic", name: "", pattern_type: "Literal", permission: "Allow" });
  const set = (name) => (event) => setForm((old) => ({ ...old, [name]: event.target.value }));
  const select = (name, values) => html`<select value=${form[name]} onChange=${set(name)}>${values.map((each) => html`<option>${each}</option>`)}</select>`;
  return html`<${Dialog} title="Add rule" onClose=${onClose}><div class="fields">
      <${Field} label="Principal"><input value=${form.principal} onInput=${set("principal")} /><//><${Field} label="Permission">${select("permission", ["Allow", "Deny"])}<//>
      <${Field} label="Operation">${select("operation", ["All", ...OPERATIONS])}<//><${Field} label="Resource">${select("resource_type", RESOURCES)}<//>
      <${Field} label="Name" hint="* for all; of the cluster: kafka-cluster"><input value=${form.name} onInput=${set("name")} /><//><${Field} label="Pattern">${select("pattern_type", ["Literal", "Prefixed"])}<//>
    </div>
    <div class="actions"><${Action} kind="main" onClick=${async () => { await post("/v1/acls", { rules: [form] }); await reload(); onClose(); }} disabled=${!form.name}>Add<//><button type="button" onClick=${onClose}>Cancel</button></div>
  <//>`;
}

function Users() {
  const users = useData(() => get("/v1/users"), [], { every: 10000 });
  const tokens = useData(() => get("/v1/tokens"), [], { every: 10000 });
  const [editing, setEditing] = useState(/** @type {any} */ (null));
  const [removing, setRemoving] = useState("");
  return html`<h2>Users with a password</h2>
    <${Loaded} loaded=${users}>${(found) => html`<${Table} label="Users" rows=${found.users} keyOf=${(each) => each.name} empty="No user has a password." columns=${[
      { name: "User", cell: (each) => each.name }, { name: "Mechanisms", wide: true, cell: (each) => each.credentials.map((c) => c.mechanism).join(", ") },
      may("Alter") && { name: "Change", cell: (each) => html`<button type="button" class="plain" aria-label=${`Set the password of ${each.name}`} onClick=${() => setEditing({ name: each.name })}>Password</button>
        <button type="button" class="plain" aria-label=${`Delete ${each.name}`} onClick=${() => setRemoving(each.name)}>Delete</button>` },
    ]} />`}<//>
    ${may("Alter") && html`<div class="actions"><button type="button" class="main" onClick=${() => setEditing({ name: "", isNew: true })}>Create user</button></div>`}
    <h2>Principals with a token</h2>
    <${Loaded} loaded=${tokens}>${(found) => html`<${Table} label="Tokens" rows=${found.principals} keyOf=${(each) => each} empty="The configuration has no tokens." columns=${[{ name: "Principal", cell: (each) => each }]} /><p class="hint">Tokens are in the configuration and never shown.</p>`}<//>
    <${Commands} commands=${["sparrow user list", `curl ${location.origin}/v1/users`]} />
    ${editing && html`<${EditUser} user=${editing} reload=${users.reload} onClose=${() => setEditing(null)} />`}
    ${removing && html`<${DeleteUser} name=${removing} onClose=${() => setRemoving("")} onDone=${async () => { setRemoving(""); await users.reload(); }} />`}`;
}

/** @param {any} props */
function DeleteUser({ name, onClose, onDone }) {
  const path = `/v1/users/${part(name)}`;
  const look = async () => {
    const [user, { rules }] = await Promise.all([describe(path), get("/v1/acls", { principal: `User:${name}` })]);
    return { ...user, rules: rules.length };
  };
  return html`<${Destroy} title="Delete user" name=${name} verb="Delete user" look=${look} run=${(user) => request("DELETE", path, { headers: only(user) })} onDone=${onDone} onClose=${onClose}
    facts=${(user) => ({ id: user.tag })} loss=${(user) => html`<p><strong>1 user</strong> with ${plural(user.credentials.length, "password hash", "password hashes")} will be lost; its sessions end. ${plural(user.rules, "rule")} about it ${user.rules === 1 ? "stays" : "stay"}.</p>`} />`;
}

/** @param {any} props */
function EditUser({ user, reload, onClose }) {
  const [form, setForm] = useState({ name: user.name, password: "" });
  const save = async () => {
    if (user.isNew) await post("/v1/users", form);
    else await request("PUT", `/v1/users/${part(user.name)}`, { body: { password: form.password } });
    await reload();
    onClose();
  };
  return html`<${Dialog} title=${user.isNew ? "Create user" : `Password of ${user.name}`} onClose=${onClose}>
    ${user.isNew && html`<${Field} label="Name"><input value=${form.name} onInput=${(e) => setForm({ ...form, name: e.target.value })} autocomplete="off" /><//>`}
    <${Field} label="Password"><input type="password" value=${form.password} onInput=${(e) => setForm({ ...form, password: e.target.value })} autocomplete="new-password" /><//>
    <div class="actions"><${Action} kind="main" onClick=${save} disabled=${!form.name || !form.password}>Save<//><button type="button" onClick=${onClose}>Cancel</button></div>
    <${Commands} commands=${[`sparrow user ${user.isNew ? "create" : "password"} ${shell(form.name || "NAME")}`]} />
  <//>`;
}

function Quotas() {
  const loaded = useData(() => get("/v1/quotas"), [], { every: 10000 });
  const [editing, setEditing] = useState(/** @type {any} */ (null));
  return html`<${Loaded} loaded=${loaded}>${(found) => html`<${Table} label="Quotas" rows=${found.quotas} keyOf=${(each) => JSON.stringify(each.entity)} empty="No quota: nobody is slowed down." columns=${[
      { name: "Of", wide: true, cell: (each) => Object.entries(each.entity).map(([kind, name]) => `${kind} ${name ?? "(default)"}`).join(", ") },
      { name: "Limits", wide: true, cell: (each) => Object.entries(each.values).map(([name, value]) => `${name} = ${count(value)}`).join(", ") },
      may("AlterConfigs") && { name: "Change", cell: (each) => html`<button type="button" class="plain" onClick=${() => setEditing(each)}>Change</button>` },
    ]} />`}<//>
    ${may("AlterConfigs") && html`<div class="actions"><button type="button" class="main" onClick=${() => setEditing({ entity: { user: "" }, values: {} })}>Set quota</button></div>`}
    <${Commands} commands=${["sparrow quota list", `curl ${location.origin}/v1/quotas`]} />
    ${editing && html`<${EditQuota} quota=${editing} reload=${loaded.reload} onClose=${() => setEditing(null)} />`}`;
}

/** @param {any} props */
function EditQuota({ quota, reload, onClose }) {
  const [entity] = Object.entries(quota.entity);
  const [form, setForm] = useState({ kind: entity[0], name: entity[1] ?? "", producer_byte_rate: quota.values.producer_byte_rate ?? "", consumer_byte_rate: quota.values.consumer_byte_rate ?? "" });
  const set = (name) => (event) => setForm((old) => ({ ...old, [name]: event.target.value }));
  const number = (text) => (text === "" ? null : Number(text));
  const save = async () => {
    const values = { producer_byte_rate: number(form.producer_byte_rate), consumer_byte_rate: number(form.consumer_byte_rate) };
    await request("PATCH", "/v1/quotas", { body: { entity: { [form.kind]: form.name || null }, values } });
    await reload();
    onClose();
  };
  return html`<${Dialog} title="Quota" onClose=${onClose}><div class="fields">
      <${Field} label="Kind"><select value=${form.kind} onChange=${set("kind")}>${["user", "client-id", "ip"].map((each) => html`<option>${each}</option>`)}</select><//>
      <${Field} label="Name" hint="Empty: the default of the kind."><input value=${form.name} onInput=${set("name")} /><//>
      <${Field} label="Publish, bytes per second" hint="Empty: no limit."><input inputmode="numeric" value=${form.producer_byte_rate} onInput=${set("producer_byte_rate")} /><//>
      <${Field} label="Read, bytes per second" hint="Empty: no limit."><input inputmode="numeric" value=${form.consumer_byte_rate} onInput=${set("consumer_byte_rate")} /><//>
    </div><div class="actions"><${Action} kind="main" onClick=${save}>Save<//><button type="button" onClick=${onClose}>Cancel</button></div><//>`;
}
