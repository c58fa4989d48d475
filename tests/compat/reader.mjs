// Test items against a filter of lua/FORMAT.md on live servers: written from that page alone, without a script.
//
//   node reader.mjs NAME SERVER < items
//
// reads plain and sharded filters (kinds 0 and 3).  The server is the path of a unix socket, or host:port.  Each line
// of the input is an item in hexadecimal.  The output has one character an item: 1 if the item is in the filter, else 0.
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';

const [HEADER_BYTES, IDENTITY_BYTES, RECORD_BYTES, MAX_RECORD_BYTES] = [64, 56, 96, 65624];
const [FILTER, SHARDED, DEFERRED, IN_USE] = [0, 3, 4, 0];
const BLOCK_BITS = { 1: 0, 2: 256, 3: 128 }; // by layout; 0 in the classic one
const check = (condition, message) => { if (!condition) throw new Error(message); };

// MurmurHash3 x64 128 with seed 0: h1 and h2.
const u64 = (x) => BigInt.asUintN(64, x);
const rotated = (x, by) => u64(x << by) | (x >> (64n - by));
const half = (h) => h ^ (h >> 33n);
const finished = (h) => half(u64(half(u64(half(h) * 0xff51afd7ed558ccdn)) * 0xc4ceb9fe1a85ec53n));
function murmur128(item) {
  const padded = Buffer.concat([item, Buffer.alloc(16)]);
  const [c1, c2, length] = [0x87c37b91114253d5n, 0x4cf5ad432745937fn, BigInt(item.length)];
  let [h1, h2, at] = [0n, 0n, 0];
  const mix1 = () => u64(rotated(u64(padded.readBigUInt64LE(at) * c1), 31n) * c2);
  const mix2 = () => u64(rotated(u64(padded.readBigUInt64LE(at + 8) * c2), 33n) * c1);
  for (; at + 16 <= item.length; at += 16) {
    h1 = u64((rotated(h1 ^ mix1(), 27n) + h2) * 5n + 0x52dce729n);
    h2 = u64((rotated(h2 ^ mix2(), 31n) + h1) * 5n + 0x38495ab5n);
  }
  [h1, h2] = [h1 ^ mix1() ^ length, h2 ^ mix2() ^ length];
  [h1, h2] = [finished(u64(h1 + h2)), finished(u64(h1 + 2n * h2))];
  return [u64(h1 + h2), u64(h1 + 2n * h2)];
}

// MurmurHash3 x86 32.
const folded = (x) => (x ^ (x >>> 16)) >>> 0;
function murmur32(item, seed) {
  const padded = Buffer.concat([item, Buffer.alloc(4)]);
  const turned = (x, by) => (x << by) | (x >>> (32 - by));
  const mix = (k) => Math.imul(turned(Math.imul(k, 0xcc9e2d51), 15), 0x1b873593);
  let [h, at] = [seed, 0];
  for (; at + 4 <= item.length; at += 4) h = Math.imul(turned(h ^ mix(padded.readUInt32LE(at)), 13), 5) + 0xe6546b64;
  h ^= mix(padded.readUInt32LE(at)) ^ item.length;
  h = Math.imul(folded(h), 0x85ebca6b);
  return folded(Math.imul(h ^ (h >>> 13), 0xc2b2ae35));
}

// The bits of an item by the bytes that have them: pairs of the index of a byte in the string, and a mask.
function bytesOf(item, { b, k, g, m }) {
  const [h1, h2] = murmur128(item);
  const pair = (bit) => [HEADER_BYTES + Math.floor(bit / 8), 128 >> bit % 8];
  if (!b) {
    const [x, y] = [Number(h1 % BigInt(m)), Number(h2 % BigInt(m))];
    return Array.from({ length: k }, (_, i) => pair((x + i * y + (i ** 3 - i) / 6) % m));
  }
  let w = [h1 & 0xffffffffn, h1 >> 32n, h2 & 0xffffffffn, h2 >> 32n].map(Number);
  return Array.from({ length: g }).flatMap((_, j) => {
    const [first, next] = [j, j + 1].map((region) => Math.floor((region * (m / b)) / g));
    const block = first + Number((BigInt(w[0]) * BigInt(next - first)) >> 32n);
    const bits = new Set();
    for (let i = 0; i < k / g; i += 1) {
      let bit = ((w[1 + (i >> 2)] >>> (8 * (i % 4))) & 255) % b;
      while (bits.has(bit)) bit = (bit + 1) % b;
      bits.add(bit);
    }
    w = [w[1], w[2], w[3], w[0]].map((x) => folded(Math.imul(folded(x), 73244475)));
    return [...bits].map((bit) => pair(block * b + bit));
  });
}

function parsed(header, kind) {
  check(header.length >= HEADER_BYTES && header.toString('latin1', 0, 6) === 'bloomr', 'no filter');
  check(header[6] === 1, `it has version ${header[6]} of the format; this program reads version 1`);
  const [b, k, g, m] = [BLOCK_BITS[header[7]], header[8], header[9], header.readUInt32BE(20)];
  check(b !== undefined && header[10] === kind && header[11] === 0, 'unknown layout, kind or rules');
  check(header[12] === 0 || (kind === FILTER && header[12] === DEFERRED), 'unknown flags');
  check(header.readUIntBE(13, 3) === 0, 'unknown options');
  check(header.readUInt32BE(16) === 0, 'its items are encoded, and this program has only the items');
  const blocksFit = b ? g >= 1 && m % b === 0 && m >= b * g && k % g === 0 && k <= 12 * g : g === 0;
  check(k >= 1 && m >= 1 && m <= 2 ** 32 - 512 && blocksFit, 'no filter has these parameters');
  return { b, k, g, m, identity: header.subarray(0, IDENTITY_BYTES) };
}

// A connection: a function that sends commands together and returns their replies; one call at a time.
function client(server) {
  const socket = server.includes('/') ? connect(server) : connect(...server.split(':').reverse());
  const encoded = (part) => `$${Buffer.byteLength(String(part))}\r\n${part}\r\n`;
  return (commands) => new Promise((resolve) => {
    let [received, replies] = [Buffer.alloc(0), []];
    socket.removeAllListeners('data').on('data', (chunk) => {
      received = Buffer.concat([received, chunk]);
      for (let end; (end = received.indexOf('\r\n')) >= 0; ) {
        const [isString, line] = [received[0] === 36, received.toString('utf8', 0, end)];
        check(isString || line[0] === ':', `the server replied ${line}`);
        const last = isString ? end + 2 + Number(line.slice(1)) : end;
        if (last + 2 > received.length) return;
        replies.push(isString ? received.subarray(end + 2, last) : Number(line.slice(1)));
        received = received.subarray(last + 2);
      }
      if (replies.length === commands.length) resolve(replies);
    });
    socket.write(commands.map((parts) => `*${parts.length}\r\n${parts.map(encoded).join('')}`).join(''));
  });
}

// Test items against one string.  Its identity is read after the bits, and has to be the known one still.
async function answers(send, key, head, items) {
  const bytes = items.map((item) => bytesOf(item, head));
  const reads = bytes.flat().map(([index]) => ['GETRANGE', key, index, index]);
  const replies = await send([...reads, ['GETRANGE', key, 0, 63], ['STRLEN', key]]);
  const [header, size] = replies.splice(-2);
  check(header.subarray(0, IDENTITY_BYTES).equals(head.identity), `${key} is lost`);
  const isAlone = size === HEADER_BYTES && header[12] & DEFERRED && header.readBigUInt64BE(56) === 0n;
  check(isAlone || size === HEADER_BYTES + Math.ceil(head.m / 8), `${key} was cut to ${size} bytes`);
  const found = replies.values();
  return bytes.map((own) => own.filter(([, mask]) => !(found.next().value[0] & mask)).length === 0);
}

function shardKey(name, shard, shards, j = 0) {
  const [runs, tag] = [Math.min(shards, 256), `${name}:${shard}:${j}`];
  const step = (crc) => (crc << 1) ^ (crc & 0x8000 ? 0x11021 : 0); // CRC-16
  const slot = Buffer.from(tag).reduce((crc, byte) => [...'12345678'].reduce(step, crc ^ (byte << 8)), 0) % 16384;
  const fits = Math.floor((slot * runs) / 16384) === Math.floor((shard * runs) / shards);
  return fits ? `{${tag}}` : shardKey(name, shard, shards, j + 1);
}

async function sharded(server, name, record, items) {
  const [head, shards, seed] = [parsed(record, SHARDED), ...[64, 72].map((at) => Number(record.readBigUInt64BE(at)))];
  check(record.readUInt16BE(88) === IN_USE, 'its shards are being made, or deleted');
  check(record.readUInt16BE(90) === 1 && record.readUInt32BE(92) === 0, 'the shard record has other numbers in bytes 90 to 95');
  check(record.length === RECORD_BYTES + 8 * shards, 'the shard record was cut');
  const [found, shares] = [[], Array.from({ length: shards }, () => [])];
  items.forEach((item, i) => shares[Math.floor((murmur32(item, seed) * shards) / 2 ** 32)].push(i));
  for (const [shard, share] of shares.entries()) {
    const [key, made] = [shardKey(name, shard, shards), record.subarray(RECORD_BYTES + 8 * shard).subarray(0, 8)];
    const [start, kind, m] = [record.subarray(0, 10), Buffer.of(FILTER, 0, DEFERRED, 0, 0, 0), record.subarray(16, 24)];
    const [capacity, rateAndTag] = [record.subarray(80, 88), record.subarray(32, 44)];
    const identity = Buffer.concat([start, kind, m, capacity, rateAndTag, made.subarray(4), made]);
    const own = share.map((i) => items[i]);
    (await answers(server, key, { ...head, identity }, own)).forEach((isIn, at) => { found[share[at]] = isIn; });
  }
  return found;
}

const [name, server] = [process.argv[2], client(process.argv[3])];
const items = readFileSync(0, 'latin1').split('\n').slice(0, -1).map((line) => Buffer.from(line, 'hex'));
const [stored] = await server([['GETRANGE', name, 0, MAX_RECORD_BYTES - 1]]);
const found = stored[10] === SHARDED ? await sharded(server, name, stored, items)
  : await answers(server, name, parsed(stored, FILTER), items);
process.stdout.write(found.map(Number).join(''), () => process.exit());
