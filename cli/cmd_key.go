package cli

import (
	"encoding/json"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/gateway/identity"
	"github.com/forebay-io/forebay/internal/conf"
)

// keyFlags are those of every key command.
type keyFlags struct {
	path, config *string
}

func (c *console) keyFlags(set *flag.FlagSet) keyFlags {
	return keyFlags{
		path:   set.String("file", "", "key file, or folder of key files; the default is identity.keys of the configuration"),
		config: set.String("config", c.getenv(configVar), "YAML file with the configuration"),
	}
}

// settings loads the configuration, if one is named, and finds the key file.
func (k *keyFlags) settings(c *console) (*Config, error) {
	s := &settings{path: k.config}
	s.schema = conf.Of(&s.Config)
	cfg := &s.Config
	if *k.config != "" || *k.path == "" {
		if err := c.load(s); err != nil {
			return nil, err
		}
	}
	if *k.path != "" {
		cfg.Identity.Keys = *k.path
	}
	if cfg.Identity.Keys == "" {
		return nil, usageError("where are the keys? Give --file PATH, or set identity.keys in the configuration that --config or " + configVar + " names")
	}
	return cfg, nil
}

// runKeyNew makes a key. Standard output gets the key alone, so that it can be piped
// to where it belongs.
func runKeyNew(c *console, args []string) error {
	set := newFlagSet("key new NAME --tenant TENANT [flags]")
	flags := c.keyFlags(set)
	d := identity.Draft{}
	set.StringVar(&d.Tenant, "tenant", "", "tenant of the key")
	expires := set.String("expires", "", "when it expires: 90d, 12h, 2027-01-31 or 2027-01-31T12:00:00Z; empty is never")
	classes := set.String("classes", "", "classes that it may use, separated by commas; empty gives the tenant's")
	routes := set.String("routes", "", "routes that it may use, of chat_completions, completions, responses, messages, embeddings, rerank and models; empty allows all")
	models := set.String("models", "", "models that it may use; empty allows all")
	var limits budget.Limits
	schema := conf.Of(&limits)
	given := schema.Flags(set, nil)
	names, err := c.parse(set, args)
	if err != nil {
		return err
	}
	switch {
	case len(names) != 1:
		return usageError("key new takes the name of the key")
	case d.Tenant == "":
		return usageError("key new needs --tenant TENANT, whose key it is")
	}
	if err := schema.Load(conf.Source{Flags: given}); err != nil {
		return err
	}
	d.Limits = limitLines(&limits)
	now := time.Now()
	if d.Expires, err = expiry(*expires, now); err != nil {
		return err
	}
	d.Name, d.Classes, d.Routes, d.Models = names[0], listOf(*classes), listOf(*routes), listOf(*models)
	cfg, err := flags.settings(c)
	if err != nil {
		return err
	}
	key, file, err := identity.Add(cfg.Identity.Keys, d, now, func(e identity.Entry) error {
		if *flags.config == "" {
			return nil // nothing is known of tenants
		}
		return identity.CheckEntry(e, cfg.Admission)
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(c.err, "The key %s of the tenant %s, whose hash is now in %s. It is shown this once:\n", d.Name, d.Tenant, file)
	_, err = fmt.Fprintln(c.out, key)
	return err
}

// limitLines are the limits that there are, as lines of YAML.
func limitLines(limits *budget.Limits) (lines []string) {
	for _, arg := range conf.Of(limits).Args("") {
		key, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		lines = append(lines, key+": "+value)
	}
	return lines
}

// expiry reads an instant, a day or a time from now.
func expiry(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if days, err := strconv.Atoi(strings.TrimSuffix(text, "d")); err == nil && strings.HasSuffix(text, "d") && days > 0 && days < 100_000 {
		return now.AddDate(0, 0, days), nil
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(d), nil
	}
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(form, text); err == nil {
			if !t.After(now) {
				return t, usageError("--expires: " + text + " is over already")
			}
			return t, nil
		}
	}
	return time.Time{}, usageError(fmt.Sprintf("--expires: %q is not 90d, 12h, 2027-01-31 or 2027-01-31T12:00:00Z", text))
}

func listOf(text string) (list []string) {
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}

// keyLine is a key as key list --json prints it.
type keyLine struct {
	Name    string   `json:"name"`
	Tenant  string   `json:"tenant"`
	State   string   `json:"state"`
	ID      string   `json:"id"`
	Created string   `json:"created,omitempty"`
	Expires string   `json:"expires,omitempty"`
	Revoked string   `json:"revoked,omitempty"`
	Classes []string `json:"classes,omitempty"`
	Routes  []string `json:"routes,omitempty"`
	Models  []string `json:"models,omitempty"`
	Limits  []string `json:"limits,omitempty"`
}

func runKeyList(c *console, args []string) error {
	set := newFlagSet("key list [--file PATH] [--json]")
	flags := c.keyFlags(set)
	asJSON := set.Bool("json", false, "print JSON")
	rest, err := c.parse(set, args)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return usageError(fmt.Sprintf("%q is not expected here", rest[0]))
	}
	cfg, err := flags.settings(c)
	if err != nil {
		return err
	}
	entries, err := identity.List(cfg.Identity.Keys)
	if err != nil {
		return err
	}
	lines := make([]keyLine, len(entries))
	for i, e := range entries {
		lines[i] = keyLine{e.Name, e.Tenant, e.State(time.Now()).String(), e.ID, e.Created, e.Expires, e.Revoked, e.Classes, e.Routes, e.Models, limitLines(&e.Limits)}
	}
	if *asJSON {
		text, err := json.MarshalIndent(lines, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.out, "%s\n", text)
		return err
	}
	t := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tTENANT\tSTATE\tEXPIRES\tCREATED\tID")
	for _, l := range lines {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", l.Name, l.Tenant, l.State, orDash(l.Expires), orDash(l.Created), l.ID)
	}
	return t.Flush()
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func runKeyRevoke(c *console, args []string) error {
	set := newFlagSet("key revoke NAME [--file PATH]")
	flags := c.keyFlags(set)
	names, err := c.parse(set, args)
	if err != nil {
		return err
	}
	if len(names) != 1 {
		return usageError("key revoke takes the name of a key")
	}
	cfg, err := flags.settings(c)
	if err != nil {
		return err
	}
	file, err := identity.Revoke(cfg.Identity.Keys, names[0], time.Now())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "%s is revoked in %s. A running gateway takes it within two of identity.poll_interval; what it has started goes on.\n", names[0], file)
	return err
}
