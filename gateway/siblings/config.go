package siblings

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/forebay-io/forebay/internal/store"
)

// Config says who the siblings are.
type Config struct {
	Store             string `yaml:"store" secret:"true" help:"Redis through which replicas find each other, as budget.store; empty serves every request here."`
	StoreUser         string `yaml:"store_user" help:"User at that Redis (ACL), if the address has none."`
	StorePasswordFile string `yaml:"store_password_file" help:"File with the password for that Redis, read again for each connection; instead of one in the address."`
	StoreCA           string `yaml:"store_ca" help:"File with the certificates (PEM) of the authorities that rediss:// trusts; empty trusts those of the system."`
	StoreCert         string `yaml:"store_cert" help:"File with the client certificate (PEM) that is shown to that Redis."`
	StoreKey          string `yaml:"store_key" help:"File with the private key (PEM) of store_cert."`
	StoreServerName   string `yaml:"store_server_name" help:"Name that the certificate of that Redis must have; empty is the host of the address."`
	Prefix            string `yaml:"prefix" default:"forebay" help:"What every key in Redis begins with; no braces and no spaces."`

	Peers      []string      `yaml:"peers" help:"In place of store, addresses at which all replicas listen (siblings.listen): HOST:PORT, or dns:NAME:PORT for all addresses of a name, such as a headless service. This replica's may be among them. Each asks each other one in every interval, so use store for more than about 30."`
	PeersEvery time.Duration `yaml:"peers_every" default:"5s" range:"10ms..10m" help:"How often the names of peers are looked up."`

	Name      string `yaml:"name" help:"Name of this replica, unlike all others; needed with store and with peers."`
	Listen    string `yaml:"listen" default:":0" help:"Address at which siblings send requests, as host:port; port 0 takes a free one, which peers would not know."`
	Advertise string `yaml:"advertise" help:"Address at which siblings reach it, as host:port; empty is the address from which this host reaches Redis, and the port of listen."`
	// API is where this replica's own API listens, for AdvertiseAPI.
	API          net.Addr `yaml:"-"`
	AdvertiseAPI string   `yaml:"advertise_api" help:"Address at which proxies reach this replica's API, as IP:PORT, for the endpoint picker (envoy.picker.on); empty is that of listen, or the port of listen at the address of advertise where listen has none. Where listen is a loopback address and siblings are elsewhere, or has no host and siblings are found by peers, set it, or proxies are not told of this replica."`
	Labels       string   `yaml:"labels" help:"Labels of this replica, as KEY=VALUE, separated by commas, for the selector of an InferencePool."`

	SecretFile    string `yaml:"secret_file" help:"File with the secret that all replicas have, at least 16 bytes; empty agrees on one in Redis, which then vouches for who may send. Needed with peers."`
	TLSCert       string `yaml:"tls_cert" help:"File with the certificate (PEM) that this replica shows to siblings, as a server and as a client; with it they speak TLS. The three files are read again when they have changed."`
	TLSKey        string `yaml:"tls_key" help:"File with the private key (PEM) of tls_cert."`
	TLSCA         string `yaml:"tls_ca" help:"File with the certificates (PEM) of the authorities that siblings' certificates must come from."`
	TLSServerName string `yaml:"tls_server_name" help:"Name that the certificates of all siblings must have; empty is the host of the address of the one that is connected to."`

	Interval    time.Duration `yaml:"interval" default:"100ms" range:"10ms..10s" help:"How often news are sent and fetched, in one round trip."`
	CallLimit   time.Duration `yaml:"call_limit" default:"50ms" range:"1ms..10s" help:"Longest round trip to Redis; no request waits for it."`
	Lease       time.Duration `yaml:"lease" default:"3s" range:"100ms..1m" help:"Time after which a sibling that says nothing is away."`
	GrainTokens int           `yaml:"grain_tokens" default:"128" range:"1..65536" help:"Prompt tokens for which one block is told to the others, on average: how exactly they know what is held. All replicas need the same."`
	BlocksMax   int           `yaml:"blocks_max" default:"1048576" range:"1024..1073741824" help:"Blocks of siblings that are remembered, of 64 bytes each at most; the one unused for longest is forgotten. As many of our own are told to them."`
	ChangesMax  int           `yaml:"changes_max" default:"65536" range:"64..16777216" help:"Changes of own blocks that wait for Redis; more are dropped and counted, and the others fetch all blocks."`
	LogMax      int           `yaml:"log_max" default:"8192" range:"64..1048576" help:"Batches of changes that Redis keeps for slow readers."`
	ReportsMax  int           `yaml:"reports_max" default:"32" range:"1..256" help:"Reports of siblings that are read at a time; of more, each is read in turn."`

	HopCost      time.Duration `yaml:"hop_cost" default:"2ms" range:"1us..1s" help:"What a hop adds to the time to the first token."`
	GainMin      time.Duration `yaml:"gain_min" default:"20ms" range:"1ms..1m" help:"A request stays unless a sibling is sooner by this and by a tenth."`
	FreshLimit   time.Duration `yaml:"fresh_limit" default:"500ms" range:"10ms..1m" help:"Age of a report from which on two siblings at random are compared instead of all."`
	ConnectLimit time.Duration `yaml:"connect_limit" default:"250ms" range:"1ms..1m" help:"Longest time to connect to a sibling."`
	SilenceLimit time.Duration `yaml:"silence_limit" default:"3s" range:"1500ms..1m" help:"Silence of a sibling after which a hop has failed; it gives a sign of life each second."`
	AvoidFor     time.Duration `yaml:"avoid_for" default:"2s" range:"10ms..10m" help:"For how long a sibling gets no requests after a hop to it failed."`
	HopsMax      int           `yaml:"hops_max" default:"256" range:"1..65536" help:"Requests at each sibling at a time, each on a connection; more stay here."`
}

// On says that there are siblings.
func (c *Config) On() bool { return c.Store != "" || len(c.Peers) > 0 }

// Mistakes checks what no tag can say.
func (c *Config) Mistakes() error {
	if !c.On() {
		if c.Name != "" || c.Advertise != "" || c.SecretFile != "" || c.AdvertiseAPI != "" || c.Labels != "" || c.TLSCert != "" {
			return errors.New("siblings.name, siblings.advertise, siblings.advertise_api, siblings.labels, siblings.secret_file and siblings.tls_cert need siblings.store, the Redis through which replicas find each other, or siblings.peers")
		}
		return nil
	}
	errs := append(checkPeers(c.Peers), store.CheckPrefix("siblings.prefix", c.Prefix), c.checkTLS())
	if len(c.Peers) > 0 {
		errs = append(errs, c.checkDirect())
	}
	if !isName(c.Name) {
		errs = append(errs, fmt.Errorf("siblings.name: %q must be 1 to 64 letters, digits, dots, dashes or underscores, and unlike the names of all other replicas", c.Name))
	}
	if _, err := readLabels(c.Labels); err != nil {
		errs = append(errs, err)
	}
	for key, address := range map[string]string{"listen": c.Listen, "advertise": c.Advertise, "advertise_api": c.AdvertiseAPI} {
		if _, _, err := net.SplitHostPort(address); err != nil && address != "" {
			errs = append(errs, fmt.Errorf("siblings.%s: %q is not an address such as 10.0.0.7:8082", key, address))
		}
	}
	return errors.Join(errs...)
}

// checkDirect checks what siblings.peers asks of other settings.
func (c *Config) checkDirect() error {
	var errs []error
	if c.Store != "" {
		errs = append(errs, errors.New("siblings.store and siblings.peers are two ways to find siblings: set one of them"))
	}
	if c.SecretFile == "" {
		errs = append(errs, errors.New("siblings.secret_file is needed with siblings.peers: without a Redis nothing else says who may send"))
	}
	if _, port, err := net.SplitHostPort(c.Listen); err == nil && (port == "" || port == "0") {
		errs = append(errs, errors.New("siblings.listen needs a port with siblings.peers, such as :8082, at which the others ask"))
	}
	if c.Advertise != "" {
		errs = append(errs, errors.New("siblings.advertise has no effect with siblings.peers: siblings send to the address at which they found this replica"))
	}
	return errors.Join(errs...)
}

// isName tells whether a name can stand in a header, a key and a list.
func isName(name string) bool {
	for _, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_') {
			return false
		}
	}
	return name != "" && len(name) <= 64
}
