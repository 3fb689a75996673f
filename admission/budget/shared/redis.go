package shared

import (
	"context"
	_ "embed" // for sync.lua
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/forebay-io/forebay/admission/budget"
)

//go:embed sync.lua
var syncText string

var syncScript = redis.NewScript(syncText)

// aliveScript keeps the gateways that are alive, with the time at which each counts
// as dead. A key of another type ends at once, and is made anew by the next call.
var aliveScript = redis.NewScript(`
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local added = redis.pcall('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
if type(added) == 'table' then
  redis.call('PEXPIRE', KEYS[1], 0)
  redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
end
if ARGV[3] == '1' then redis.call('ZREM', KEYS[1], ARGV[1]) end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])`)

// redisLedger is a ledger in one Redis.
type redisLedger struct {
	client *redis.Client
	prefix string
}

// openRedis does not connect yet. Its error does not quote the address, which may
// hold a password.
func openRedis(cfg budget.Config) (*redisLedger, error) {
	o, err := redis.ParseURL(cfg.Store)
	if err != nil {
		return nil, errors.New("budget.store is not the address of a Redis, such as redis://127.0.0.1:6379/0, rediss://USER:PASSWORD@HOST:PORT or unix:///PATH; special characters of a password are written as %XX")
	}
	if err := grant(o, &cfg); err != nil {
		return nil, err
	}
	o.ClientName = ""
	o.Protocol = 2
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.MaxRetries = -1 // the next call makes up for one that failed
	o.ContextTimeoutEnabled = true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = cfg.DecisionLimit, cfg.DecisionLimit, cfg.DecisionLimit, cfg.DecisionLimit
	o.DialerRetries = 1
	o.PoolSize, o.MaxActiveConns, o.MaxConcurrentDials = cfg.PoolSize, cfg.PoolSize, cfg.PoolSize
	o.Dialer = (&dialer{redis.NewDialer(o), make(chan struct{}, cfg.PoolSize)}).Dial
	logging.Disable() // the breaker logs each failure once
	return &redisLedger{redis.NewClient(o), cfg.Prefix}, nil
}

// bookKey is the key of a book. A Redis cluster places a key by what is between the
// braces, so it keeps all books of a tenant and a model together; no name can close
// them, or equal another's.
func bookKey(prefix string, k budget.Key) string {
	key := prefix + ":budget:{" + keyEscapes.Replace(k.Tenant) + ":" + keyEscapes.Replace(k.Model) + "}"
	if k.Kind != "tenant" {
		key += ":" + keyEscapes.Replace(k.Kind) + ":" + keyEscapes.Replace(k.Name)
	}
	return key
}

var keyEscapes = strings.NewReplacer("%", "%25", ":", "%3A", "{", "%7B", "}", "%7D")

func (l *redisLedger) sync(ctx context.Context, calls []*call) ([]reply, error) {
	texts, err := l.run(ctx, calls)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		if err = syncScript.Load(ctx, l.client).Err(); err == nil {
			texts, err = l.run(ctx, calls)
		}
	}
	if err != nil {
		return nil, err
	}
	replies := make([]reply, len(calls))
	for i, text := range texts {
		if err := json.Unmarshal([]byte(text), &replies[i]); err != nil {
			return nil, fmt.Errorf("reply of the budget script: %w", err)
		}
	}
	return replies, nil
}

func (l *redisLedger) run(ctx context.Context, calls []*call) ([]string, error) {
	results, err := l.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, c := range calls {
			text, err := json.Marshal(c)
			if err != nil {
				return err
			}
			syncScript.EvalSha(ctx, p, []string{c.key}, text)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	texts := make([]string, len(results))
	for i, r := range results {
		if texts[i], err = r.(*redis.Cmd).Text(); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

func (l *redisLedger) alive(ctx context.Context, id string, lease time.Duration, leave bool) (int, error) {
	left := "0"
	if leave {
		left = "1"
	}
	return aliveScript.Run(ctx, l.client, []string{l.prefix + ":gateways"}, id, lease.Milliseconds(), left).Int()
}

func (l *redisLedger) close() { l.client.Close() }
