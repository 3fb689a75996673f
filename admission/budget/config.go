package budget

import "time"

// Config says where budgets are kept, and what holds when that place fails.
type Config struct {
	Store             string `yaml:"store" secret:"true" help:"Redis that gateways share, as redis://[USER:PASSWORD@]HOST:PORT[/DB], rediss://…, redis+cluster://HOST:PORT,…, redis+sentinel://HOST:PORT,…/MASTER or unix://…; empty counts in this process alone."`
	StoreUser         string `yaml:"store_user" help:"User at that Redis (ACL), if the address has none."`
	StorePasswordFile string `yaml:"store_password_file" help:"File with the password for that Redis, read again for each connection; instead of one in the address."`
	StoreCA           string `yaml:"store_ca" help:"File with the certificates (PEM) of the authorities that rediss:// trusts; empty trusts those of the system."`
	StoreCert         string `yaml:"store_cert" help:"File with the client certificate (PEM) that is shown to that Redis."`
	StoreKey          string `yaml:"store_key" help:"File with the private key (PEM) of store_cert."`
	StoreServerName   string `yaml:"store_server_name" help:"Name that the certificate of that Redis must have; empty is the host of the address."`

	Prefix     string        `yaml:"prefix" default:"forebay" help:"What every key in Redis begins with; no braces and no spaces."`
	Burst      time.Duration `yaml:"burst" default:"10s" range:"1s..60s" help:"How much of a minute's limit may be used at once, one request at least; within any 60 seconds, limit + burst is admitted at most."`
	BucketsMax int           `yaml:"buckets_max" default:"10000" range:"16..10000000" help:"Budgets, one for each tenant and model, that are kept in memory; the one unused for longest is forgotten."`

	UsersMax int          `yaml:"users_max" default:"10000" range:"16..10000000" help:"The same for budgets of end users, so that they take the place of no tenant's."`
	Prices   []ModelPrice `yaml:"prices" help:"Prices of models, for limits of money; the first that fits counts."`

	GatewaysMax   int           `yaml:"gateways_max" default:"64" range:"2..1000" help:"Gateways with one Redis of which it is remembered what each was charged, so that limits of hours, days, months and money are exact after Redis lost its data or a gateway was cut off; each adds some 60 bytes to what such a limit's budget sends to Redis and back."`
	DecisionLimit time.Duration `yaml:"decision_limit" default:"25ms" range:"1ms..5s" help:"Longest wait for Redis before on_failure decides."`
	OnFailure     string        `yaml:"on_failure" default:"local" oneof:"local open closed" help:"What holds while Redis does not answer: local gives each gateway its part of the limit, open admits all, closed refuses all with 503."`
	Lease         time.Duration `yaml:"lease" default:"30s" range:"2s..10m" help:"Time after which what a dead gateway held is given back."`
	SyncInterval  time.Duration `yaml:"sync_interval" default:"100ms" range:"10ms..1s" help:"How often Redis is told what was used."`
	BreakerErrors int           `yaml:"breaker_errors" default:"3" range:"1..1000" help:"Failures in a row after which Redis is left alone."`
	BreakerWait   time.Duration `yaml:"breaker_wait" default:"500ms" range:"10ms..1m" help:"For how long, before one call tries again."`
	PoolSize      int           `yaml:"pool_size" default:"8" range:"1..1000" help:"Most connections to each Redis server."`
}

// ModelPrice is the price of a model's tokens.
type ModelPrice struct {
	Model  string  `yaml:"model" help:"Model, as requests name it; * is any."`
	Prompt float64 `yaml:"prompt" range:"0..1000000000" help:"Money for a million prompt tokens that are computed."`
	Cached float64 `yaml:"cached" range:"0..1000000000" help:"Money for a million prompt tokens that are found in the cache."`
	Output float64 `yaml:"output" range:"0..1000000000" help:"Money for a million generated tokens."`
}

// Price is what a token of a model costs; nothing if no price fits.
func (c *Config) Price(model string) Price {
	const million = 1e6
	for _, p := range c.Prices {
		if p.Model == "*" || p.Model == model {
			return Price{Prompt: p.Prompt / million, Cached: p.Cached / million, Output: p.Output / million}
		}
	}
	return Price{}
}
