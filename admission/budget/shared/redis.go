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

	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/internal/store"
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

// redisLedger is a ledger in one Redis, or in a Redis Cluster: each call has one key.
type redisLedger struct {
	client redis.UniversalClient
	prefix string
}

// openRedis does not connect yet.
func openRedis(cfg budget.Config) (*redisLedger, error) {
	client, err := store.Open(store.Access{
		Setting: "budget.store", Address: cfg.Store, User: cfg.StoreUser, PasswordFile: cfg.StorePasswordFile,
		CA: cfg.StoreCA, Cert: cfg.StoreCert, Key: cfg.StoreKey, ServerName: cfg.StoreServerName,
		Limit: cfg.DecisionLimit, PoolSize: cfg.PoolSize,
	})
	if err != nil {
		return nil, err
	}
	if err := store.CheckPrefix("budget.prefix", cfg.Prefix); err != nil {
		client.Close()
		return nil, err
	}
	return &redisLedger{client, cfg.Prefix}, nil
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

func (l *redisLedger) sync(ctx context.Context, calls []*call) []reply {
	replies := make([]reply, len(calls))
	unknown := l.run(ctx, calls, replies, make([]int, 0, len(calls)))
	if len(unknown) == 0 {
		return replies
	}
	// The server of each key needs the script; the calls are repeated alone.
	again, answers := make([]*call, len(unknown)), make([]reply, len(unknown))
	for i, at := range unknown {
		again[i] = calls[at]
	}
	if err := l.load(ctx, again); err != nil {
		return replies
	}
	l.run(ctx, again, answers, nil)
	for i, at := range unknown {
		replies[at] = answers[i]
	}
	return replies
}

// load gives the script to every server.
func (l *redisLedger) load(ctx context.Context, calls []*call) error {
	if c, ok := l.client.(*redis.ClusterClient); ok {
		for _, call := range calls {
			server, err := c.MasterForKey(ctx, call.key)
			if err != nil {
				return err
			}
			if err := syncScript.Load(ctx, server).Err(); err != nil {
				return err
			}
		}
		return nil
	}
	return syncScript.Load(ctx, l.client).Err()
}

// run makes calls in one round trip to each server, and appends those whose server
// does not know the script to unknown. A server that fails spoils its own calls alone.
func (l *redisLedger) run(ctx context.Context, calls []*call, replies []reply, unknown []int) []int {
	results := make([]*redis.Cmd, len(calls))
	l.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, c := range calls {
			text, err := json.Marshal(c)
			if err != nil {
				replies[i].err = err
				continue
			}
			results[i] = syncScript.EvalSha(ctx, p, []string{c.key}, text)
		}
		return nil
	}) // the error is one of the calls'
	for i, r := range results {
		if r == nil {
			continue
		}
		text, err := r.Text()
		if err == nil {
			if err = json.Unmarshal([]byte(text), &replies[i]); err != nil {
				err = fmt.Errorf("reply of the budget script: %w", err)
			}
		}
		replies[i].err = err
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			unknown = append(unknown, i)
		}
	}
	return unknown
}

func (l *redisLedger) read(ctx context.Context, keys []string) ([]*stored, time.Time, error) {
	var now *redis.TimeCmd
	texts := make([]*redis.StringCmd, len(keys))
	l.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		now = p.Time(ctx)
		for i, key := range keys {
			texts[i] = p.Get(ctx, key)
		}
		return nil
	}) // the error is one of the calls'
	books := make([]*stored, len(keys))
	for i, text := range texts {
		b := &stored{}
		switch text, err := text.Result(); {
		case errors.Is(err, redis.Nil), redis.HasErrorPrefix(err, "WRONGTYPE"): // the next call replaces it
		case err != nil:
			return nil, time.Time{}, err
		case json.Unmarshal([]byte(text), b) == nil: // so is what is no book
			books[i] = b
		}
	}
	return books, now.Val(), now.Err()
}

func (l *redisLedger) alive(ctx context.Context, id string, lease time.Duration, leave bool) (int, error) {
	left := "0"
	if leave {
		left = "1"
	}
	return aliveScript.Run(ctx, l.client, []string{l.prefix + ":gateways"}, id, lease.Milliseconds(), left).Int()
}

func (l *redisLedger) close() { l.client.Close() }
