-- One step of one gateway's dealings with one book: the budgets of a scope.
-- KEYS[1] holds the book, ARGV[1] the call (ledger.go says what its fields are);
-- the result is the reply. Rules are numbered as budget.Rule, from 1. The book:
--   at    ms, when v was true
--   v     of buckets the level, false where no limit; of other rules what is used
--   p     of windows their number
--   c     ms, when the book was made: another c is another book
--   n     steps since then
--   f     the book before, and the step after which its state was the latest known
--   k     by gateway, what it had been charged in that state: n, s and c as in L, a
--         once it has a lease here; those that do not come within a lease are dropped
--   i     what was missing in each bucket, or used in each window, when it was made
--   w     what each bucket could not hold since then
--   L     leases by gateway: n life, s last call, x ms when it runs out, p windows,
--         c charged in all, h of that, what is given back when it runs out
--   e     leases that ran out, and the requests and output they held
--   d     by gateway whose lease ran out, what it is charged for good: n, s and c as in
--         L, x ms of the end. It may have been cut off, and not know of its last call.

local q = cjson.decode(ARGV[1])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local rules, places, cost = 10, 4, 9 -- from cost on, fractions count
local bucket = { true, true, true, false, false, true, false, false, false, false }
local hour, day, month = 3600000, 86400000, -1
local span = { 0, 0, 0, 0, day, 0, hour, month, day, month }

-- The number of the calendar month of an instant, as budget.Window has it.
local function monthOf(ms)
  local z = math.floor(ms / day) + 719468 -- days since 0000-03-01
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local mp = math.floor((5 * (doe - 365 * yoe - math.floor(yoe / 4) + math.floor(yoe / 100)) + 2) / 153)
  local m = mp < 10 and mp + 3 or mp - 9
  return (yoe + era * 400 + (m <= 2 and 1 or 0)) * 12 + m
end

local function window(k)
  if span[k] == 0 then return 0 end
  if span[k] == month then return monthOf(now) end
  return math.floor(now / span[k])
end

-- A value that is no book, even one of another type, is replaced: one bad key stops
-- nothing.
local raw = redis.pcall('GET', KEYS[1])
local read, book = pcall(cjson.decode, raw)
local fresh = not (read and type(book) == 'table' and book.L and book.f and book.k)
local repaired = fresh and raw ~= false
if fresh then
  book = { at = now, c = now, n = 0, f = { 0, 0 }, k = {}, v = {}, p = {}, i = {}, w = {}, L = {}, e = { 0, 0, 0 }, d = {} }
  for k = 1, rules do
    book.v[k], book.p[k], book.i[k], book.w[k] = not bucket[k] and 0, window(k), 0, 0
  end
end

book.n = book.n + 1
book.d = book.d or {} -- books of older versions have none
local level = {}

-- Gives n to rule k, or takes it. from has the windows to which it belongs: what an
-- earlier one did not use is gone.
local function give(k, n, from)
  if span[k] ~= 0 and n > 0 and from[k] ~= book.p[k] then return end
  local most = bucket[k] and q.hold[k] or q.limit[k]
  if level[k] + n > most then
    if bucket[k] then book.w[k] = book.w[k] + level[k] + n - most end
    n = most - level[k]
  end
  level[k] = level[k] + n
end

-- Levels of this instant. Time that runs backwards adds nothing; if it went
-- back by more than a lease, it is counted from there.
local before = book.at
local since = math.max(0, now - book.at) / 1000
if now > book.at or book.at - now > q.lease then book.at = now end
for k = 1, rules do
  if bucket[k] then
    level[k] = book.v[k] or q.hold[k]
    give(k, q.rate[k] * since)
  else
    local n = window(k)
    if n > book.p[k] then book.p[k], book.v[k], book.i[k] = n, 0, 0 end
    level[k] = q.limit[k] - book.v[k]
  end
end

local gateways = 1
for id, lease in pairs(book.L) do
  if id == q.id then
    -- is renewed below
  elseif lease.x < now then
    for k = 1, rules do give(k, lease.h[k], lease.p) end
    book.e[1], book.e[2], book.e[3] = book.e[1] + 1, book.e[2] + lease.h[4], book.e[3] + lease.h[3]
    for k = 1, rules do lease.c[k] = lease.c[k] - lease.h[k] end
    book.L[id], book.d[id] = nil, { n = lease.n, s = lease.s, c = lease.c, x = lease.x }
  else
    gateways = gateways + 1
  end
end
for _, of in ipairs({ book.k, book.d }) do -- of those without a lease the oldest go
  local ended = {}
  for id, l in pairs(of) do
    if not book.L[id] and id ~= q.id then ended[#ended + 1] = { l.x or 0, id } end
  end
  table.sort(ended, function(a, b) return a[1] < b[1] or a[1] == b[1] and a[2] < b[2] end)
  for i = 1, #ended - q.others do of[ended[i][2]] = nil end
end

local lease = book.L[q.id]
if lease and (q.life < lease.n or q.life == lease.n and q.seq <= lease.s) then return '{"stale":true}' end
if lease and q.life > lease.n then -- the gateway had forgotten this account, and begins anew
  for k = 1, rules do give(k, lease.h[k], lease.p) end
  lease = nil
end

-- This gateway saw another book: that one was lost, or ended since it said nothing
-- any more. This one should have begun with the last state of that one, which the
-- last gateway that changed it knows. Of states of different books, the one that
-- lacks more counts. A start that is lower by more would have spilled that much less
-- since.
local saw = q.saw
-- Or it saw this one in a state that is younger than the one that Redis has.
local rewound = saw and not lease and saw.c == book.c and saw.at > before
-- Or it had come to this one, and was cut off for longer than its lease.
local ran = not lease and not rewound and book.d[q.id]
if ran and ran.n ~= q.life then ran = nil end
local another = saw and not lease and not ran and saw.c ~= book.c
-- What this gateway had been charged in the state with which this book began: more than
-- it knows, where the answer to its last call was lost.
local seen = not lease and not rewound and book.k[q.id]
if seen and (seen.a or seen.n ~= q.life) then seen = nil end
local later = another and (saw.c == book.f[1] and saw.n > book.f[2] or book.f[1] == 0)
local other = another and not later and saw.c ~= book.f[1]
if another then
  for k = 1, rules do
    local lack = book.i[k]
    if seen and span[k] ~= 0 then
      -- each gateway tells what it was charged since
    elseif bucket[k] and q.limit[k] > 0 then
      lack = math.max(0, q.hold[k] - saw.v[k] - q.rate[k] * math.max(0, book.c - saw.at) / 1000)
    elseif span[k] ~= 0 and saw.p[k] == book.p[k] then
      lack = saw.v[k]
    end
    local more = lack - book.i[k]
    if more > 0 and (later or other) then
      level[k] = level[k] - math.max(0, more - book.w[k])
      book.i[k], book.w[k] = lack, math.max(0, book.w[k] - more)
    elseif more < 0 and later then
      if book.w[k] == 0 then give(k, -more, saw.p) end
      book.i[k] = lack
    end
  end
  local newer = later or saw.c > book.f[1]
  for id, l in pairs(saw.k or {}) do
    local was = book.k[id]
    local same = was and was.n == l.n and was.s < l.s
    for k = 1, rules do
      if same and span[k] ~= 0 and saw.p[k] == book.p[k] then
        if seen and not was.a then
          level[k] = level[k] - l.c[k] + was.c[k]
        elseif not seen and later and was.a then -- it told this itself
          give(k, l.c[k] - was.c[k], saw.p)
        end
      end
    end
    if same or not was and newer and not seen then book.k[id] = { n = l.n, s = l.s, c = l.c, a = was and was.a, x = now } end
  end
  if newer then book.f = { saw.c, saw.n } end
elseif rewound then
  for k = 1, rules do
    if bucket[k] and q.limit[k] > 0 then
      level[k] = math.min(level[k], saw.v[k] + q.rate[k] * math.max(0, now - saw.at) / 1000)
    elseif span[k] ~= 0 and saw.p[k] == book.p[k] then
      level[k] = math.min(level[k], q.limit[k] - saw.v[k])
    end
  end
end
book.d[q.id] = nil
for k = 1, rules do
  local known = q.base[k]
  if lease then known = lease.c[k]
  elseif k == places then -- all of it was given back
  elseif ran then known = ran.c[k]
  elseif seen and (span[k] ~= 0 or not later) then known = seen.c[k]
  elseif another or rewound then known = q.was[k] end
  give(k, known - q.charged[k], lease and lease.p or saw and saw.p or book.p)
end
if not lease and not ran then book.k[q.id] = { n = q.life, s = q.heard, c = seen and seen.c or q.was, a = true, x = now } end

local verdicts, all = {}, true
local charged, held = q.charged, q.held
for i, ask in ipairs(q.asks) do
  local rule, missing = 0, 0
  for k = 1, rules do
    missing = math.min(ask.t[k], q.hold[k]) - level[k]
    if q.limit[k] > 0 and ask.t[k] > 0 and missing > 1e-6 then
      rule, all = k, false
      break
    end
  end
  if rule == 0 then
    for k = 1, rules do
      level[k], charged[k], held[k] = level[k] - ask.t[k], charged[k] + ask.t[k], held[k] + ask.h[k]
    end
  end
  verdicts[i] = { rule, math.max(0, missing) }
end

-- A slice: half a second's worth, a hundredth of the limit for all gateways,
-- and half of this one's part of what is left; for a request as they come, or none.
-- Places are handed out only while more than half of the limit is free: a burst at another
-- gateway would be refused while some are idle here.
gateways = math.max(gateways, q.gateways)
local slice, target = {}, {}
local useful = all and q.want
for k = 1, rules do
  target[k] = 0
  if q.limit[k] > 0 then
    local most = level[k] + q.kept[k]
    if k == places then most = most - q.limit[k] / 2 end
    most = math.max(0, most) / (2 * gateways)
    if k ~= places then most = math.min(most, q.limit[k] / 100 / gateways) end
    if bucket[k] then most = math.min(most, q.rate[k] / 2) end
    target[k] = k < cost and math.floor(most) or most
    useful = useful and target[k] >= q.typical[k]
  end
end
for k = 1, rules do
  if not useful then target[k] = 0 end
  slice[k] = math.max(0, math.min(target[k] - q.kept[k], level[k]))
  level[k] = level[k] - slice[k]
  charged[k] = charged[k] + slice[k]
  held[k] = held[k] + slice[k]
end

-- The life of the key is that of what it says.
local ttl, v = q.lease, {}
for k = 1, rules do
  v[k] = bucket[k] and level[k] or math.max(0, q.limit[k] - level[k])
  book.v[k] = (not bucket[k] or q.limit[k] > 0) and v[k]
  if bucket[k] and q.limit[k] > 0 then
    ttl = math.max(ttl, (q.hold[k] - level[k]) / q.rate[k] * 1000)
  elseif span[k] ~= 0 and q.limit[k] > 0 and v[k] > 0 then
    ttl = math.max(ttl, span[k] == month and 31 * day or (book.p[k] + 1) * span[k] - now)
  end
end
if q.leave then
  for k = 1, rules do give(k, held[k], book.p) end
  for k = 1, rules do
    if book.v[k] then book.v[k] = bucket[k] and level[k] or math.max(0, q.limit[k] - level[k]) end
  end
  book.L[q.id] = nil
else
  book.L[q.id] = { n = q.life, s = q.seq, x = now + q.lease, p = { unpack(book.p) }, c = charged, h = held }
end
redis.call('SET', KEYS[1], cjson.encode(book), 'PX', math.ceil(math.min(ttl, 32 * day)))

local others, count = {}, 0
for id, l in pairs(book.L) do
  if id ~= q.id and count < q.others then others[id], count = { n = l.n, s = l.s, c = l.c }, count + 1 end
end
for _, of in ipairs({ book.k, book.d }) do
  for id, l in pairs(of) do
    if not l.a and not others[id] and count < q.others then others[id], count = { n = l.n, s = l.s, c = l.c }, count + 1 end
  end
end
return cjson.encode({
  known = lease ~= nil, repaired = repaired, gateways = gateways, saw = { c = book.c, n = book.n, at = now, v = v, p = book.p, k = count > 0 and others or nil },
  charged = charged, held = held, slice = slice, target = target,
  verdicts = #verdicts > 0 and verdicts or nil,
})
