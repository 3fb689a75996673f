package store

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAccessErrors(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const secret = "hunter2"
	for want, cfg := range map[string]Access{
		"budget.store_user is set":          {Address: "redis://u:" + secret + "@h", User: "v"},
		"budget.store_password_file is set": {Address: "redis://u:" + secret + "@h", PasswordFile: file("p", secret)},
		"on one line":                       {Address: "redis://u@h", PasswordFile: file("two", secret+"\n"+secret)},
		"must hold the password":            {Address: "redis://u@h", PasswordFile: file("empty", "\n")},
		"no such file":                      {Address: "redis://u@h", PasswordFile: filepath.Join(dir, "none")},
		"a user and no password":            {Address: "redis://u@h"},
		"rediss://":                         {Address: "redis://h", ServerName: "n"},
		"belong together":                   {Address: "rediss://h", Cert: file("c", secret)},
		"no certificate in PEM":             {Address: "rediss://h", CA: file("ca", secret)},
		"budget.store_cert and":             {Address: "rediss://h", Cert: file("c2", secret), Key: file("k2", secret)},
	} {
		cfg.Setting = "budget.store"
		if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// What an address is taken for.
func TestAddresses(t *testing.T) {
	for address, want := range map[string]form{
		"redis://h":                             {},
		"unix:///run/redis.sock":                {},
		"redis+cluster://h":                     {kind: cluster, hosts: []string{"h:6379"}},
		"redis+cluster://u:p%40@h:1,[::1]:2,h3": {kind: cluster, hosts: []string{"h:1", "[::1]:2", "h3:6379"}},
		"rediss+cluster://h:1,h:2/0":            {kind: cluster, hosts: []string{"h:1", "h:2"}},
		"redis+sentinel://u:p@h,h2:1/main":      {kind: sentinel, hosts: []string{"h:26379", "h2:1"}, master: "main"},
		"redis+sentinel://h/main/3?sentinel_user=a&sentinel_password=b": {kind: sentinel, hosts: []string{"h:26379"}, master: "main", sentinelUser: "a", sentinelPassword: "b"},
	} {
		a := Access{Setting: "budget.store", Address: address, Limit: time.Millisecond, PoolSize: 1}
		f, err := a.parse()
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if f.kind != want.kind || !slices.Equal(f.hosts, want.hosts) || f.master != want.master || f.sentinelUser != want.sentinelUser || f.sentinelPassword != want.sentinelPassword {
			t.Errorf("%s: %+v", address, *f)
		}
		if strings.Contains(address, "u:p%40") && (f.options.Username != "u" || f.options.Password != "p@") {
			t.Errorf("%s: user and password are %q, %q", address, f.options.Username, f.options.Password)
		}
		if strings.HasSuffix(address, "/3?sentinel_user=a&sentinel_password=b") && f.options.DB != 3 {
			t.Errorf("%s: database %d", address, f.options.DB)
		}
		client, err := Open(a)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		client.Close()
	}
	for address, want := range map[string]string{
		"":                               "is not the address",
		"http://h":                       "is not the address",
		"redis+cluster://":               "is not the address",
		"redis+cluster://a,,b":           "is not the address",
		"redis+cluster://a:1/2":          "only database 0",
		"redis+sentinel://a:1":           "is not the address",
		"redis+sentinel://hunter2@a:1/m": "a user and no password",
		"redis://u:hunter2%zz@h":         "is not the address",
	} {
		a := Access{Setting: "budget.store", Address: address, Limit: time.Millisecond, PoolSize: 1}
		if _, err := Open(a); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "STORE") {
			t.Errorf("%s: %v", address, err)
		}
	}
	for prefix, ok := range map[string]bool{"forebay": true, "a:b": true, "{a}": false, "a b": false, "": true} {
		if err := CheckPrefix("budget.prefix", prefix); (err == nil) != ok {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}

// A server gets no more connections than its limit, and its place in the dialer's
// books ends with the last of them.
func TestConnectionsOfEachNode(t *testing.T) {
	d := &dialer{nodeMax: 2, nodes: map[string]*node{}, dial: func(context.Context, string, string) (net.Conn, error) {
		c, _ := net.Pipe()
		return c, nil
	}}
	var open []net.Conn
	for _, address := range []string{"a", "b", "a", "b"} {
		c, err := d.Dial(context.Background(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	full, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	if _, err := d.Dial(full, "tcp", "a"); err == nil {
		t.Error("a third connection")
	}
	open[0].Close()
	open[0].Close()
	c, err := d.Dial(context.Background(), "tcp", "a")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range append(open[1:], c) {
		c.Close()
	}
	if len(d.nodes) > 0 {
		t.Errorf("%d nodes are left", len(d.nodes))
	}
}
