// Package store opens the Redis that several forebay processes share: one server, a
// Redis Cluster, or the master that Sentinels name.
//
// Goal: one place that knows addresses, users, passwords, certificates and limits of
// connections, for all that is kept there. Each call is bounded by its context, and
// is made once: the caller knows better whether to repeat it.
//
// Non-goals: what is kept, and what holds while Redis does not answer.
//
// The client belongs to the caller of Open, who closes it.
package store

import (
	"context"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Access says how to reach a Redis.
type Access struct {
	// Setting is the name of the setting with the address, for errors. The other
	// settings are named after it: Setting + "_user" is that of User.
	Setting string
	// Address is one of
	//
	//	redis://[USER:PASSWORD@]HOST:PORT[/DB]
	//	redis+cluster://[USER:PASSWORD@]HOST:PORT,HOST:PORT,…
	//	redis+sentinel://[USER:PASSWORD@]HOST:PORT,HOST:PORT,…/MASTER[/DB]
	//	unix:///PATH
	//
	// rediss in place of redis is the same with TLS. The user and password of
	// Sentinels may be given as ?sentinel_user=…&sentinel_password=….
	Address string
	// User and PasswordFile are for an address that has none. The file is read again
	// for each connection.
	User, PasswordFile string
	// CA, Cert and Key are files in PEM. ServerName is the name that the certificate
	// of Redis must have; "" is the host that is connected to.
	CA, Cert, Key, ServerName string
	// Limit bounds each connecting, reading and writing, and the wait for a connection.
	Limit time.Duration
	// PoolSize is the most connections to each server.
	PoolSize int
}

// Example is what an address looks like, for the help of settings and for errors.
const Example = "redis://127.0.0.1:6379/0, rediss://USER:PASSWORD@HOST:PORT, redis+cluster://HOST:PORT,HOST:PORT, redis+sentinel://HOST:PORT,HOST:PORT/MASTER or unix:///PATH"

// CheckPrefix refuses a prefix of keys that would change which of them a Redis Cluster
// keeps together.
func CheckPrefix(setting, prefix string) error {
	if strings.ContainsAny(prefix, "{} \t\r\n") {
		return (&Access{Setting: setting}).errorf("STORE is the beginning of keys in Redis and may have no braces and no spaces: a Redis Cluster places keys by what is between braces")
	}
	return nil
}

// Open does not connect yet. No error quotes the address, which may hold a password.
func Open(a Access) (redis.UniversalClient, error) {
	form, err := a.parse()
	if err != nil {
		return nil, err
	}
	o := form.options
	if err := a.grant(o); err != nil {
		return nil, err
	}
	logging.Disable() // the callers log failures, each once
	d := &dialer{nodeMax: a.PoolSize, nodes: map[string]*node{}}
	d.dial = redis.NewDialer(&redis.Options{DialTimeout: a.Limit, TLSConfig: o.TLSConfig})
	off := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	const once = -1 // of retries: the next call makes up for one that failed
	switch form.kind {
	case cluster:
		// A call goes to the server that has its key. Where that has moved, the client
		// follows at once, within the call's time. A server that is away says nothing of
		// who took its place: then the client asks the others, and from time to time.
		c := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: form.hosts, Dialer: d.Dial, Username: o.Username, Password: o.Password, CredentialsProvider: o.CredentialsProvider, TLSConfig: o.TLSConfig,
			Protocol: 2, DisableIdentity: true, MaintNotificationsConfig: off, ContextTimeoutEnabled: true,
			MaxRetries: once, MinRetryBackoff: time.Millisecond, MaxRetryBackoff: 2 * time.Millisecond, ClusterStateReloadInterval: topologyAge, DisableRoutingPolicies: true, DialerRetries: 1,
			DialTimeout: a.Limit, ReadTimeout: a.Limit, WriteTimeout: a.Limit, PoolTimeout: a.Limit,
			PoolSize: a.PoolSize, MaxActiveConns: a.PoolSize, MaxConcurrentDials: a.PoolSize,
		})
		d.away = func() { c.ReloadState(context.Background()) }
		return c, nil
	case sentinel:
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: form.master, SentinelAddrs: form.hosts, SentinelUsername: form.sentinelUser, SentinelPassword: form.sentinelPassword, DB: o.DB,
			Dialer: d.Dial, Username: o.Username, Password: o.Password, CredentialsProvider: o.CredentialsProvider, TLSConfig: o.TLSConfig,
			Protocol: 2, DisableIdentity: true, ContextTimeoutEnabled: true, MaxRetries: once, DialerRetries: 1,
			DialTimeout: a.Limit, ReadTimeout: a.Limit, WriteTimeout: a.Limit, PoolTimeout: a.Limit,
			PoolSize: a.PoolSize, MaxActiveConns: a.PoolSize, MaxConcurrentDials: a.PoolSize,
		}), nil
	}
	o.ClientName = ""
	o.Protocol, o.DisableIdentity, o.MaintNotificationsConfig, o.ContextTimeoutEnabled = 2, true, off, true
	o.MaxRetries, o.DialerRetries = once, 1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = a.Limit, a.Limit, a.Limit, a.Limit
	o.PoolSize, o.MaxActiveConns, o.MaxConcurrentDials = a.PoolSize, a.PoolSize, a.PoolSize
	o.Dialer = d.Dial
	return redis.NewClient(o), nil
}

// topologyAge is how old a client's knowledge of a cluster may become in use.
const topologyAge = 2 * time.Second

// kind is what an address names.
type kind uint8

const (
	single kind = iota
	cluster
	sentinel
)

var kinds = map[string]kind{"redis": single, "rediss": single, "unix": single, "redis+cluster": cluster, "rediss+cluster": cluster, "redis+sentinel": sentinel, "rediss+sentinel": sentinel}

// form is an address, taken apart.
type form struct {
	kind                           kind
	options                        *redis.Options // user, password, database, TLS
	hosts                          []string       // of cluster and sentinel
	master                         string
	sentinelUser, sentinelPassword string
}

// parse takes the address apart. net/url reads no list of hosts.
func (a *Access) parse() (*form, error) {
	bad := a.errorf("STORE is not the address of a Redis, such as " + Example + "; special characters of a password are written as %XX")
	scheme, rest, _ := strings.Cut(a.Address, "://")
	k, ok := kinds[scheme]
	if !ok {
		return nil, bad
	}
	f := &form{kind: k}
	address := a.Address
	if k != single {
		authority, path, query := split(rest)
		user, hosts := "", authority
		if i := strings.LastIndex(authority, "@"); i >= 0 {
			user, hosts = authority[:i+1], authority[i+1:]
		}
		port := "6379"
		if k == sentinel {
			port = "26379"
			f.master, path, _ = strings.Cut(path, "/")
			values, err := url.ParseQuery(query)
			if err != nil || f.master == "" {
				return nil, bad
			}
			f.sentinelUser, f.sentinelPassword = values.Get("sentinel_user"), values.Get("sentinel_password")
			values.Del("sentinel_user")
			values.Del("sentinel_password")
			query = values.Encode()
		}
		if k == cluster && path != "" && path != "0" {
			return nil, a.errorf("STORE is a Redis Cluster and names a database: a cluster has only database 0")
		}
		if f.hosts = withPorts(hosts, port); f.hosts == nil {
			return nil, bad
		}
		plain, _, _ := strings.Cut(scheme, "+")
		address = plain + "://" + user + f.hosts[0] + "/" + path + "?" + query
	}
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, bad
	}
	if k != single && o.TLSConfig != nil {
		o.TLSConfig.ServerName = "" // each server has its own name
	}
	f.options = o
	return f, nil
}

// split cuts what follows a scheme into authority, path without its slash, and query.
func split(rest string) (authority, path, query string) {
	rest, query, _ = strings.Cut(rest, "?")
	authority, path, _ = strings.Cut(rest, "/")
	return authority, path, query
}

// hostsMax bounds the hosts of an address.
const hostsMax = 64

// withPorts is a list of hosts, each with a port; nil if one is not a host.
func withPorts(list, port string) []string {
	all := strings.Split(list, ",")
	for i, host := range all {
		name, given, err := net.SplitHostPort(host)
		if err != nil {
			name, given = strings.Trim(host, "[]"), port
		}
		if name == "" || given == "" || strings.ContainsAny(host, " @/") || i == hostsMax {
			return nil
		}
		all[i] = net.JoinHostPort(name, given)
	}
	return all
}

// Host is the first server of an address, as host:port; "" for none.
func Host(address string) string {
	f, err := (&Access{Address: address}).parse()
	switch {
	case err != nil:
		return ""
	case len(f.hosts) > 0:
		return f.hosts[0]
	}
	return f.options.Addr
}
