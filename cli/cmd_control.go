package cli

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/xds"
	"github.com/forebay-io/forebay/xds/control"
	"github.com/forebay-io/forebay/xds/controlpb"
)

// runControl serves a folder of policies over xDS until a signal.
func runControl(c *console, args []string) error {
	set := newFlagSet("control --dir DIR [flags]")
	var cfg control.Config
	var logs struct {
		Log LogConfig `yaml:"log"`
	}
	schema, logSchema := conf.Of(&cfg), conf.Of(&logs)
	given, logGiven := schema.Flags(set, nil), logSchema.Flags(set, map[string]string{"log-level": "log.level"})
	if rest, err := c.parse(set, args); err != nil {
		return err
	} else if len(rest) > 0 {
		return usageError(fmt.Sprintf("%q is not expected here", rest[0]))
	}
	if err := errors.Join(schema.Load(conf.Source{Flags: given}), logSchema.Load(conf.Source{Flags: logGiven})); err != nil {
		return err
	}
	if cfg.Dir == "" {
		return usageError("control needs --dir DIR, the folder of policy files")
	}
	defer c.decouple(logs.Log.LinesMax)()
	log := c.logger(logs.Log, "control")
	ctx, stop := untilSignal(func() {}, func() {})
	defer stop()
	ln, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer ln.Close()
	server, err := control.New(ctx, cfg, log)
	if err != nil {
		return err
	}
	stopAdmin, err := serveControlAdmin(cfg.Admin, server)
	if err != nil {
		return err
	}
	defer stopAdmin()
	stopAPI, err := serveControlAPI(cfg.API, server)
	if err != nil {
		return err
	}
	defer stopAPI()
	log.Info("control: serving", "address", ln.Addr().String(), "dir", cfg.Dir, "version", server.Version())
	looking := make(chan struct{})
	go func() {
		defer close(looking)
		server.Run(ctx)
	}()
	go func() {
		<-ctx.Done()
		server.Stop()
	}()
	err = server.Serve(ln)
	stop()
	<-looking
	return err
}

// runControlBootstrap prints a client's bootstrap.
func runControlBootstrap(c *console, args []string) error {
	set := newFlagSet("control bootstrap envoy|grpc|forebay [--server ADDR] [flags]")
	host, _ := os.Hostname()
	b := control.Bootstrap{}
	set.StringVar(&b.Server, "server", "127.0.0.1:18000", "address of the control plane, as host:port")
	set.StringVar(&b.ID, "id", host, "id of the node; each client needs its own")
	set.StringVar(&b.Cluster, "cluster", "forebay", "cluster of the node")
	set.StringVar(&b.CA, "ca", "", "file with the authorities (PEM) of the control plane's certificate; empty speaks plain text")
	set.StringVar(&b.Cert, "cert", "", "file with the client's certificate (PEM)")
	set.StringVar(&b.Key, "key", "", "file with the private key (PEM) of --cert")
	set.StringVar(&b.Admin, "admin", "127.0.0.1:9901", "address of Envoy's admin page, as host:port")
	output := set.String("o", "", "file to write to; empty is standard output")
	kinds, err := c.parse(set, args)
	if err != nil {
		return err
	}
	known := []control.Kind{control.Envoy, control.GRPC, control.Forebay}
	if len(kinds) != 1 || !slices.Contains(known, control.Kind(kinds[0])) {
		return usageError("control bootstrap is followed by one of envoy, grpc, forebay")
	}
	if !isAddress(b.Server) {
		return usageError(fmt.Sprintf("--server %q is not an address such as 127.0.0.1:18000", b.Server))
	}
	if (b.Cert == "") != (b.Key == "") || b.Cert != "" && b.CA == "" {
		return usageError("--cert needs --key and --ca")
	}
	text, err := b.For(control.Kind(kinds[0]))
	if err != nil {
		return err
	}
	if *output != "" {
		return os.WriteFile(*output, []byte(text), 0o600)
	}
	_, err = io.WriteString(c.out, text)
	return err
}

// statusBytesMax bounds an answer: that about ten thousand nodes has some megabytes.
const statusBytesMax = 256 << 20

// controlLimit bounds a question to a control plane.
const controlLimit = 10 * time.Second

// askControl calls a running control plane, which the flags of set name.
func (c *console) askControl(set *flag.FlagSet, args []string, ask func(context.Context, controlpb.ControlServiceClient) error) error {
	server := set.String("server", "127.0.0.1:18000", "address of the control plane, as host:port")
	var files xds.TLSConfig
	set.StringVar(&files.CA, "ca", "", "file with the authorities (PEM) of the control plane's certificate; empty speaks plain text")
	set.StringVar(&files.Cert, "cert", "", "file with the client's certificate (PEM)")
	set.StringVar(&files.Key, "key", "", "file with the private key (PEM) of --cert")
	if rest, err := c.parse(set, args); err != nil {
		return err
	} else if len(rest) > 0 {
		return usageError(fmt.Sprintf("%q is not expected here", rest[0]))
	}
	creds := xds.BootstrapCreds{Type: "insecure"}
	if files.CA != "" {
		creds = xds.BootstrapCreds{Type: "tls", Config: &files}
	}
	conn, err := (&xds.BootstrapServer{URI: "passthrough:///" + *server, Creds: []xds.BootstrapCreds{creds}}).Dial(grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(statusBytesMax)))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), controlLimit)
	defer cancel()
	if err := ask(ctx, controlpb.NewControlServiceClient(conn)); err != nil {
		if s, ok := status.FromError(err); ok {
			return fmt.Errorf("no control plane answers at %s; does forebay control run there? %s", *server, s.Message())
		}
		return err
	}
	return nil
}

// runControlStatus shows what a control plane serves, and how far its nodes are.
func runControlStatus(c *console, args []string) error {
	set := newFlagSet("control status [--server ADDR] [--json]")
	asJSON := set.Bool("json", false, "print JSON")
	var page *controlpb.GetStatusResponse
	err := c.askControl(set, args, func(ctx context.Context, client controlpb.ControlServiceClient) (err error) {
		page, err = client.GetStatus(ctx, &controlpb.GetStatusRequest{})
		return err
	})
	if err != nil {
		return err
	}
	if *asJSON {
		text, err := json.MarshalIndent(statusPage(page), "", "  ")
		if err != nil {
			return err
		}
		_, err = c.out.Write(append(text, '\n'))
		return err
	}
	return printControlStatus(c.out, page)
}

// controlNode is a node in the JSON of control status.
type controlNode struct {
	ID      string        `json:"id"`
	Cluster string        `json:"cluster"`
	Kind    string        `json:"kind"`
	Canary  bool          `json:"canary"`
	Since   time.Time     `json:"since"`
	Types   []controlType `json:"types"`
}

type controlType struct {
	Type      string `json:"type"`
	Current   string `json:"current"`
	Sent      string `json:"sent"`
	Acked     string `json:"acked"`
	State     string `json:"state"`
	Error     string `json:"error,omitempty"`
	Nacks     int64  `json:"nacks"`
	Responses int64  `json:"responses"`
}

func statusPage(page *controlpb.GetStatusResponse) any {
	nodes := []controlNode{}
	for _, n := range page.Nodes {
		node := controlNode{ID: n.Id, Cluster: n.Cluster, Kind: n.Kind, Canary: n.Canary, Since: time.Unix(n.SinceUnix, 0).UTC()}
		for _, t := range n.Types {
			node.Types = append(node.Types, controlType{typeWord(t.TypeUrl), t.CurrentVersion, t.SentVersion, t.AckedVersion, stateWord(t), t.Error, t.Nacks, t.Responses})
		}
		nodes = append(nodes, node)
	}
	return map[string]any{"version": page.Version, "taken": time.Unix(page.TakenUnix, 0).UTC(), "error": page.Error, "rollout": page.Rollout, "nodes": nodes}
}

// typeWord is the last word of a type's URL.
func typeWord(typeURL string) string { return typeURL[strings.LastIndexByte(typeURL, '.')+1:] }

// stateWord says how far a node is with a type.
func stateWord(t *controlpb.TypeState) string {
	switch {
	case t.Error != "":
		return "refused"
	case t.AckedVersion != t.SentVersion:
		return "sent"
	case t.AckedVersion != t.CurrentVersion:
		return "behind"
	}
	return "ok"
}

func printControlStatus(w io.Writer, page *controlpb.GetStatusResponse) error {
	fmt.Fprintf(w, "version %s, taken %s, %d nodes\n", page.Version, time.Unix(page.TakenUnix, 0).UTC().Format(time.RFC3339), len(page.Nodes))
	if page.Rollout != "" {
		fmt.Fprintln(w, "rollout:", page.Rollout)
	}
	for line := range strings.Lines(page.Error) {
		fmt.Fprintln(w, "not served:", strings.TrimSuffix(line, "\n"))
	}
	if len(page.Nodes) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nNODE\tKIND\tTYPE\tSTATE\tACKED\tCURRENT\tREFUSALS\tERROR")
	for _, n := range page.Nodes {
		name := n.Id
		if n.Canary {
			name += " (canary)"
		}
		for _, of := range n.Types {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", name, n.Kind, typeWord(of.TypeUrl), stateWord(of), dash(of.AckedVersion), of.CurrentVersion, of.Nacks, strings.ReplaceAll(of.Error, "\n", "; "))
		}
	}
	return t.Flush()
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// errDiffers ends control diff with status 1, as diff does.
var errDiffers = errors.New("what is served differs from the folder")

// runControlDiff compares a folder with what a control plane serves.
func runControlDiff(c *console, args []string) error {
	set := newFlagSet("control diff --dir DIR [--server ADDR]")
	dir := set.String("dir", "", "folder of policy files")
	var served *controlpb.ListResourcesResponse
	err := c.askControl(set, args, func(ctx context.Context, client controlpb.ControlServiceClient) (err error) {
		if *dir == "" {
			return usageError("control diff needs --dir DIR, the folder to compare with")
		}
		served, err = client.ListResources(ctx, &controlpb.ListResourcesRequest{})
		return err
	})
	if err != nil {
		return err
	}
	defaults := control.Config{}
	conf.Fill(&defaults)
	files, err := control.Read(*dir, defaults.FilesMax, defaults.BytesMax)
	if err != nil {
		return err
	}
	sets, err := control.Build(files)
	if err != nil {
		return err
	}
	if control.Diff(c.out, served.Resources, sets.List()) {
		return errDiffers
	}
	_, err = fmt.Fprintln(c.out, "no difference")
	return err
}
