"use strict";
(() => {
  const films = [...document.querySelectorAll(".film")].map(begin);
  let active = films[0];

  function begin(root) {
    const data = JSON.parse(root.querySelector("script").textContent);
    const find = (name) => root.querySelector(`[data-part="${name}"]`);
    const slider = find("slider"), play = find("play"), speed = find("speed"), picture = find("picture");
    const layers = [...root.querySelectorAll("[data-layer]")];
    const film = { at: 0, timer: 0, show, toggle, step: (by) => show(film.at + by), last: data.frames.length - 1 };

    function show(wanted) {
      film.at = Math.max(0, Math.min(film.last, wanted));
      const frame = data.frames[film.at];
      slider.value = film.at;
      slider.setAttribute("aria-valuetext", frame.title);
      find("title").textContent = film.at ? `${frame.title} of ${film.last}` : frame.title;
      for (const layer of layers) {
        const piece = String(frame.layers[layer.dataset.layer] ?? "");
        if (layer.dataset.piece !== piece) {
          layer.dataset.piece = piece;
          layer.innerHTML = piece === "" ? "" : data.pieces[Number(piece)];
        }
      }
      if (picture && frame.image !== null) picture.src = data.images[frame.image];
      const x = film.last ? (1000 * film.at) / film.last : 0;
      for (const end of ["x1", "x2"]) find("cursor").setAttribute(end, x);
      find("reward").textContent = frame.reward;
      find("return").textContent = frame.total;
      fill(find("facts"), frame.facts.map(([who, what]) => [make("dt", who), make("dd", what)]).flat());
      fill(find("reasons"), frame.reasons.map(([why, points]) => make("li", `${points}  ${why}`)));
      fill(find("likeliest"), frame.likeliest.map(likely));
      find("policy").hidden = !frame.likeliest.length;
      find("value").textContent = frame.value === null ? "" : `Expected return from here on: ${frame.value}, discounted and scaled as in training.`;
      root.querySelectorAll("[data-go]").forEach((link) =>
        link.setAttribute("aria-current", Number(link.dataset.go) === film.at ? "step" : "false"));
      if (film.at === film.last) stop();
    }

    function likely([name, chance, taken]) {
      const row = make("li", "");
      const bar = make("span", "");
      bar.className = "bar";
      bar.style.width = `${Math.max(1, 100 * chance)}%`;
      row.append(bar, make("span", name), make("span", chance > 0 && chance < 0.001 ? "< 0.1 %" : `${(100 * chance).toFixed(1)} %`));
      if (taken) { row.className = "taken"; row.title = "this one was taken"; }
      return row;
    }

    function toggle() {
      if (film.timer) { stop(); return; }
      if (film.at === film.last) show(0);
      film.timer = setInterval(() => film.step(1), 1000 / Number(speed.value));
      play.textContent = "❚❚";
      play.setAttribute("aria-label", "pause");
      find("now").setAttribute("aria-live", "off"); // nobody wants five steps a second read out
    }

    function stop() {
      clearInterval(film.timer);
      film.timer = 0;
      play.textContent = "▶";
      play.setAttribute("aria-label", "play");
      find("now").setAttribute("aria-live", "polite");
    }

    film.faster = (by) => {
      speed.selectedIndex = Math.max(0, Math.min(speed.options.length - 1, speed.selectedIndex + by));
      if (film.timer) { stop(); toggle(); }
    };
    slider.addEventListener("input", () => show(Number(slider.value)));
    play.addEventListener("click", toggle);
    speed.addEventListener("change", () => film.faster(0));
    find("back").addEventListener("click", () => film.step(-1));
    find("forward").addEventListener("click", () => film.step(1));
    scrub(find("curve"), (share) => Math.round(film.last * share));
    for (const scene of root.querySelectorAll("[data-scrub]")) {
      const chart = scene.querySelector("svg"), clock = data.clocks[scene.dataset.scrub];
      scrub(chart, (share) => clock.findLastIndex((x) => x <= share * chart.viewBox.baseVal.width + 1));
    }

    function scrub(element, frameAt) {
      const go = (event) => {
        const box = element.getBoundingClientRect();
        show(frameAt((event.clientX - box.left) / box.width));
      };
      element.addEventListener("pointerdown", (event) => { element.setPointerCapture(event.pointerId); go(event); });
      element.addEventListener("pointermove", (event) => { if (event.buttons) go(event); });
    }

    picture?.addEventListener("load", () => picture.classList.toggle("tiny", picture.naturalWidth < 200));
    root.querySelectorAll("[data-go]").forEach((link) =>
      link.addEventListener("click", () => show(Number(link.dataset.go))));
    for (const kind of ["pointerdown", "focusin"]) root.addEventListener(kind, () => { active = film; });
    show(Number(root.dataset.start));
    return film;
  }

  function make(tag, words) {
    const element = document.createElement(tag);
    element.textContent = words;
    return element;
  }

  function fill(parent, children) { parent.replaceChildren(...children); }

  document.addEventListener("keydown", (event) => {
    const kind = event.target.tagName;
    if (!active || event.ctrlKey || event.altKey || event.metaKey || kind === "SELECT") return;
    if (kind === "BUTTON" && event.key === " ") return;
    if (kind === "INPUT" && event.key !== " " && event.key !== "+" && event.key !== "-") return;
    const does = {
      " ": active.toggle,
      ArrowLeft: () => active.step(-1),
      ArrowRight: () => active.step(1),
      Home: () => active.show(0),
      End: () => active.show(active.last),
      "+": () => active.faster(1),
      "-": () => active.faster(-1),
    }[event.key];
    if (does) { event.preventDefault(); does(); }
  });
})();
