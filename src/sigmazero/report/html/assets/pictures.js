// Images from the page's data: clean ones as bytes, adversarial ones as what differs from them.
window.sigmazero.pictures = (() => {
  "use strict";
  const { colour } = window.sigmazero;
  const LESS = [124, 92, 190]; // purple and orange stay apart for colour-blind readers, in both themes
  const MORE = [230, 97, 1];
  const ACROSS = 56; // a mark is at least this part of the image's longer side

  const bytes = (text) => {
    const marks = atob(text);
    const made = new Uint8Array(marks.length);
    for (let k = 0; k < marks.length; k += 1) made[k] = marks.charCodeAt(k);
    return made;
  };

  const decode = (group) => {
    group.pixels = bytes(group.images);
    for (const cell of group.cells) {
      const raw = bytes(cell.index).buffer;
      cell.places = cell.wide ? new Uint32Array(raw) : new Uint16Array(raw);
      cell.values = bytes(cell.value);
      cell.offsets = [0];
      for (const count of cell.counts) cell.offsets.push(cell.offsets.at(-1) + count);
    }
  };

  const clean = (group, place) => {
    const size = group.shape.reduce((a, b) => a * b, 1);
    return group.pixels.slice(place * size, (place + 1) * size);
  };

  const changes = (cell, at) => {
    const found = [];
    for (let i = cell.offsets[at]; i < cell.offsets[at + 1]; i += 1) found.push([cell.places[i], cell.values[i]]);
    return found;
  };

  const adversarial = (image, changed) => {
    const copy = image.slice();
    for (const [place, value] of changed) copy[place] = value;
    return copy;
  };

  const paint = (canvas, shape, image) => {
    const [channels, height, width] = shape;
    Object.assign(canvas, { width, height });
    canvas.style.setProperty("--ratio", `${width} / ${height}`);
    const made = new ImageData(width, height);
    for (let p = 0; p < width * height; p += 1) {
      for (let c = 0; c < 3; c += 1) made.data[4 * p + c] = image[(channels === 1 ? 0 : c) * width * height + p];
      made.data[4 * p + 3] = 255;
    }
    canvas.getContext("2d").putImageData(made, 0, 0);
  };

  // Per position the largest change over its channels; a mark is large enough to be seen on a large image.
  const paintChanges = (canvas, shape, image, changed) => {
    const [, height, width] = shape;
    const each = width * height;
    const zoom = Math.max(1, Math.round(224 / Math.max(width, height)));
    Object.assign(canvas, { width: width * zoom, height: height * zoom });
    canvas.style.setProperty("--ratio", `${width} / ${height}`);
    const largest = new Map();
    for (const [place, value] of changed) {
      const by = value - image[place];
      if (Math.abs(by) >= Math.abs(largest.get(place % each) ?? 0)) largest.set(place % each, by);
    }
    const pen = canvas.getContext("2d");
    pen.imageSmoothingEnabled = false;
    pen.fillStyle = colour("panel");
    pen.fillRect(0, 0, canvas.width, canvas.height);
    const faint = document.createElement("canvas");
    paint(faint, shape, image);
    pen.globalAlpha = 0.22;
    pen.drawImage(faint, 0, 0, canvas.width, canvas.height);
    pen.globalAlpha = 1;
    const size = Math.max(1, Math.max(width, height) / ACROSS) * zoom;
    for (const [place, by] of largest) {
      const strength = 0.45 + (0.55 * Math.abs(by)) / 255;
      pen.fillStyle = `rgb(${(by < 0 ? LESS : MORE).join(" ")} / ${strength})`;
      const middle = [((place % width) + 0.5) * zoom, (Math.floor(place / width) + 0.5) * zoom];
      pen.fillRect(middle[0] - size / 2, middle[1] - size / 2, size, size);
    }
  };

  return { bytes, decode, clean, changes, adversarial, paint, paintChanges };
})();
