"use strict";

const byId = id => document.getElementById(id);

// The token is in the URL that the command prints. The page keeps it in its session storage, for a reload. A cookie would
// go to every port of this machine, also to the programs of other users.
const token = new URLSearchParams(location.search).get("token") || sessionStorage.getItem("token") || "";
sessionStorage.setItem("token", token);
history.replaceState(null, "", location.pathname);

const url = (path, query) => `${path}?${new URLSearchParams({ ...query, token })}`;

// el makes an element. Text is never taken as HTML.
function el(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "onclick") e.addEventListener("click", value);
    else if (value !== undefined && value !== false) e.setAttribute(name, value);
  }
  e.append(...children.flat().filter(c => c !== null && c !== undefined));
  return e;
}

// show puts new contents into a part of the page, and keeps the focus where it was.
function show(id, ...children) {
  const focused = document.activeElement && document.activeElement.dataset.key;
  byId(id).replaceChildren(...children.flat());
  if (focused && byId(id).querySelector) {
    const again = byId(id).querySelector(`[data-key="${CSS.escape(focused)}"]`);
    if (again && document.activeElement === document.body) again.focus();
  }
}

const none = text => el("p", { class: "none" }, text);

let actions = [];
let ahead = 0; // of the cluster's clock, in milliseconds

function ago(since) {
  if (!since) return "";
  const seconds = Math.max(0, Math.round((Date.now() + ahead - Date.parse(since)) / 1000));
  if (seconds < 100) return `${seconds} s`;
  if (seconds < 6000) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}

function age(since) { return since ? el("span", { class: "note", "data-since": since }, ago(since)) : ""; }

async function why(kind, namespace, name) {
  const title = `${kind} ${namespace ? namespace + "/" : ""}${name}`;
  byId("answer-title").textContent = title;
  byId("answer-text").textContent = "asking";
  byId("answer").showModal();
  const answer = await fetch(url("why", { kind, namespace: namespace || "", name }));
  byId("answer-text").textContent = await answer.text();
}

function whyButton(kind, namespace, name) {
  return el("button", {
    "data-key": `why ${kind} ${namespace || ""}/${name}`, "aria-label": `why ${name}`,
    onclick: () => why(kind, namespace, name),
  }, "why");
}

function actionButton(action, node) {
  return el("button", {
    "data-key": `${action} ${node}`, "aria-label": `${action} ${node}`,
    onclick: async event => {
      event.currentTarget.disabled = true;
      const answer = await fetch(url("actions", { action, node }), { method: "POST" });
      if (!answer.ok) {
        byId("answer-title").textContent = `${action}: ${node}`;
        byId("answer-text").textContent = await answer.text();
        byId("answer").showModal();
      }
      event.target.disabled = false;
    },
  }, action);
}

function reasons(list) { return list && list.length ? ` (${list.join(", ")})` : ""; }

function disk(d) {
  const moving = d.state !== "Attached";
  const role = d.role.toLowerCase();
  return el("span", {
    class: `disk ${role}${moving ? " moving" : ""}`,
    title: `${d.azVolume}: ${role}, ${d.state}`,
  }, moving ? `${d.label}: ${d.state}` : d.label);
}

function node(n) {
  const facts = [n.vmSize, n.slots !== undefined ? `${n.slotsFree} of ${n.slots} disk slots free` : "",
    n.kubelet ? `kubelet ${n.kubelet}` : ""].filter(Boolean).join(", ");
  return el("article", { class: n.healthy ? "node" : "node ill", "aria-label": n.name },
    el("h4", null, n.name, el("span", null, n.state + reasons(n.reasons))),
    el("p", { class: "note" }, facts),
    el("div", { class: "disks" }, (n.disks || []).map(disk)),
    el("div", { class: "buttons" }, whyButton("Node", "", n.name), actions.map(a => actionButton(a, n.name))));
}

function zone(z) {
  const counts = [`${z.nodeCount} nodes`, z.unhealthy ? `${z.unhealthy} not healthy` : "", `${z.primaries} primaries`,
    `${z.replicas} replicas`, z.slots ? `${z.slotsFree} of ${z.slots} slots free` : "",
    z.nodesOmitted ? `${z.nodesOmitted} not shown: type a name` : ""].filter(Boolean).join(", ");
  return el("div", { class: "zone" },
    el("h3", null, z.name || "no zone", " ", el("span", { class: "counts" }, counts)),
    el("div", { class: "nodes" }, z.nodes.map(node)));
}

function pod(p) {
  const state = p.phase === "Running" && !p.ready ? "Running, not ready" : p.phase;
  return el("div", { class: p.phase === "Running" && p.ready ? "good" : "moves" }, `${p.name}: ${state}${p.node ? " on " + p.node : ""}`);
}

function volume(v) {
  const name = v.claim || v.persistentVolume || v.azVolume;
  const primary = (v.primaryNodes || []).join(", ");
  const ownership = v.ownership && v.ownership !== "Held" && primary ? ` (${v.ownership})` : "";
  const complete = v.replicasReady >= v.replicasWanted;
  return el("tr", null,
    el("td", { class: "soft" }, v.namespace || ""),
    el("td", { title: v.azVolume }, name),
    el("td", { class: (v.reasons || []).length ? "bad" : "" }, v.state + reasons(v.reasons)),
    el("td", null, primary + ownership),
    el("td", { class: complete ? "" : "bad" }, `${v.replicasReady}/${v.replicasWanted}`),
    el("td", null, (v.warmNodes || []).join(", ")),
    el("td", { class: "soft" }, v.fencing || ""),
    el("td", null, (v.pods || []).map(pod)),
    el("td", null, v.claim ? whyButton("PersistentVolumeClaim", v.namespace, v.claim) : whyButton("PersistentVolume", "", name)));
}

function volumes(o) {
  if (!o.volumes.length) return none("No volume of this driver.");
  const head = ["Namespace", "Claim", "Disk", "Primary", "Replicas", "Warm on", "Fencing", "Pods", ""];
  const more = o.volumesOmitted ? el("p", { class: "note" }, `${o.volumesOmitted} more are not shown: choose a namespace or type a name.`) : null;
  return [el("div", { class: "scroll" }, el("table", null,
    el("thead", null, el("tr", null, head.map(h => el("th", { scope: "col" }, h)))),
    el("tbody", null, o.volumes.map(volume)))), more].filter(Boolean);
}

const toggled = new Map(); // which failovers the user has opened or closed

function failover(f, index) {
  const began = Date.parse(f.steps[0].time), key = `failover ${f.node} ${began}`;
  const after = step => Math.round((Date.parse(step.time) - began) / 1000);
  const free = f.steps.filter(s => s.reason === "FailoverUnblocked");
  const outcome = free.length ? `${free.length} ${free.length === 1 ? "volume" : "volumes"} free after ${after(free[free.length - 1])} s` : "";
  const open = toggled.has(key) ? toggled.get(key) : index === 0;
  const details = el("details", { open: open ? "" : false },
    el("summary", { "data-key": key }, el("b", null, `Node ${f.node}`), " ",
      el("span", { class: "note" }, [new Date(began).toLocaleString(), outcome].filter(Boolean).join(", "))),
    el("ol", null, f.steps.map(s => el("li", null,
      el("span", null, `+${after(s)} s`), el("span", null, s.reason), el("span", null, s.message)))));
  details.addEventListener("toggle", () => toggled.set(key, details.open));
  return details;
}

function render(o) {
  ahead = Date.parse(o.time) - Date.now();
  const chosen = byId("namespace").value;
  const options = [el("option", { value: "" }, "all"), ...o.namespaces.filter(n => n.name).map(n =>
    el("option", { value: n.name }, `${n.name} (${n.volumes})`))];
  if (document.activeElement !== byId("namespace")) {
    byId("namespace").replaceChildren(...options);
    byId("namespace").value = chosen;
  }
  byId("leader").hidden = !o.warning;
  byId("leader").textContent = o.warning || "";
  byId("unread").hidden = !(o.unread || []).length;
  byId("unread").textContent = (o.unread || []).map(u => `${u.resource}: ${u.message}.`).join(" ");
  show("moves", o.moves.length ? el("ul", null, o.moves.map(m =>
    el("li", { class: "moves" }, `${m.label} ${m.message} `, age(m.since)))) : none("Nothing moves."));
  show("attention", o.attention.length ? el("ul", null, o.attention.map(a => el("li", null,
    el("span", { class: "bad" }, `${a.subject.namespace ? a.subject.namespace + "/" : ""}${a.subject.name}: ${a.state}${reasons(a.reasons)} `),
    whyButton(a.subject.kind, a.subject.namespace, a.subject.name)))) : none("Nothing."));
  show("zones", o.zones.length ? o.zones.map(zone) : none("No node has reported."));
  show("volumes", volumes(o));
  show("failovers", o.failovers.length ? o.failovers.map(failover) : none("None, as far as the cluster's events go back."));
}

let stream;

function connect() {
  if (stream) stream.close();
  stream = new EventSource(url("events", { namespace: byId("namespace").value, name: byId("name").value }));
  stream.onmessage = event => {
    render(JSON.parse(event.data));
    byId("live").className = "on";
    byId("live").textContent = "live";
  };
  stream.onerror = () => {
    byId("live").className = "off";
    byId("live").textContent = "no connection: is kubectl azuredisk ui still running?";
  };
}

setInterval(() => {
  for (const e of document.querySelectorAll("[data-since]")) e.textContent = ago(e.dataset.since);
}, 1000);

byId("namespace").addEventListener("change", connect);
byId("name").addEventListener("input", connect);
document.querySelector("form[role=search]").addEventListener("submit", event => event.preventDefault());
const slash = event => event.key === "/" && !["INPUT", "SELECT"].includes(document.activeElement.tagName);
document.addEventListener("keydown", event => { if (slash(event)) event.preventDefault(); }); // no search of the browser
document.addEventListener("keyup", event => { if (slash(event)) byId("name").focus(); });

async function begin() {
  const answer = await fetch(url("actions"));
  if (!answer.ok) {
    byId("live").className = "off";
    byId("live").textContent = await answer.text();
    return;
  }
  actions = (await answer.json()).items.map(a => a.name);
  connect();
}

begin();
