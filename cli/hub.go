package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/forebay-io/forebay/engine"
	"github.com/forebay-io/forebay/engine/hub"
)

// hubConfig reads the variables that the Hub's own tools read, with the same
// meaning, so that both use one cache and one token.
func (c *console) hubConfig() (hub.Config, error) {
	home := c.firstPath("HF_HOME")
	if home == "" {
		if cache := c.firstPath("XDG_CACHE_HOME"); cache != "" {
			home = filepath.Join(cache, "huggingface")
		} else if user := c.getenv("HOME"); user != "" {
			home = filepath.Join(user, ".cache", "huggingface")
		}
	}
	clear := ""
	if _, onTerminal := terminal(c.err); onTerminal {
		clear = "\r\x1b[K" // of what a pullLine left there
	}
	cfg := hub.Config{
		CacheDir: c.firstPath("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"), Endpoint: c.getenv("HF_ENDPOINT"),
		Offline:   isOn(c.getenv("HF_HUB_OFFLINE")) || isOn(c.getenv("TRANSFORMERS_OFFLINE")),
		UserAgent: "forebay/" + version, Proxy: http.ProxyFromEnvironment,
		Warn: func(text string) { fmt.Fprintln(c.err, clear+"forebay:", text) },
	}
	if cfg.CacheDir == "" && home != "" {
		cfg.CacheDir = filepath.Join(home, "hub")
	}
	if text := c.getenv("HF_HUB_DOWNLOAD_TIMEOUT"); text != "" {
		seconds, err := strconv.ParseUint(text, 10, 31)
		if err != nil || seconds == 0 {
			return cfg, fmt.Errorf("HF_HUB_DOWNLOAD_TIMEOUT is %q; give a number of seconds", text)
		}
		cfg.StallLimit = time.Duration(seconds) * time.Second
	}
	var err error
	cfg.Token, err = c.hubToken(home)
	return cfg, err
}

// hubToken is HF_TOKEN or what a login of the Hub's tools left in a file.
func (c *console) hubToken(home string) (string, error) {
	for _, name := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"} {
		if token := strings.TrimSpace(c.getenv(name)); token != "" {
			return token, nil
		}
	}
	path := c.firstPath("HF_TOKEN_PATH")
	if path == "" && home != "" {
		path = filepath.Join(home, "token")
	}
	if path == "" || isOn(c.getenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
		return "", nil
	}
	info, err := os.Stat(path)
	if os.IsNotExist(err) {
		return "", nil
	}
	const bytesMax = 4096
	if err == nil && (!info.Mode().IsRegular() || info.Size() > bytesMax) {
		err = fmt.Errorf("%s is no file with a token", path)
	}
	if err != nil {
		return "", fmt.Errorf("token of the hub: %w", err)
	}
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}

// firstPath is the first of the variables that is set, with ~ and variables in it.
func (c *console) firstPath(names ...string) string {
	for _, name := range names {
		path := os.Expand(c.getenv(name), c.getenv)
		if rest, ok := strings.CutPrefix(path, "~/"); ok {
			path = filepath.Join(c.getenv("HOME"), rest)
		}
		if path != "" {
			return path
		}
	}
	return ""
}

func isOn(text string) bool {
	switch strings.ToLower(text) {
	case "1", "on", "yes", "true":
		return true
	}
	return false
}

// openHub makes the client of the hub; progress may be nil.
func (c *console) openHub(progress func(hub.Progress)) (*hub.Hub, error) {
	cfg, err := c.hubConfig()
	if err != nil {
		return nil, err
	}
	if !isOn(c.getenv("HF_HUB_DISABLE_PROGRESS_BARS")) {
		cfg.Progress = progress
	}
	return hub.New(cfg)
}

// modelPath is the path of a model: name itself, or where the model that a
// reference to the hub names is, once it was downloaded.
func (c *console) modelPath(ctx context.Context, name string) (string, error) {
	if !hub.IsRef(name) {
		return name, nil
	}
	m, err := c.pull(ctx, name, newPullLine(c.err).show)
	return m.Path, err
}

func (c *console) pull(ctx context.Context, name string, progress func(hub.Progress)) (hub.Model, error) {
	ref, err := hub.ParseRef(name)
	if err != nil {
		return hub.Model{}, usageError(err.Error())
	}
	h, err := c.openHub(progress)
	if err != nil {
		return hub.Model{}, err
	}
	defer h.Close()
	return h.Pull(ctx, ref)
}

// fetchModel makes the model of cfg a path, if it is a reference to the hub, and
// gives it the name that clients ask for it by. told hears how far it is.
func (c *console) fetchModel(ctx context.Context, cfg *engine.Config, log *slog.Logger, told func(done string)) error {
	if !hub.IsRef(cfg.Model) {
		return nil
	}
	log.Info("getting the model", "model", cfg.Model)
	told("")
	every := newTicker(pullLineInterval)
	m, err := c.pull(ctx, cfg.Model, func(p hub.Progress) {
		if every.due(p.Finished) {
			done := hub.Bytes(p.Done) + " of " + hub.Bytes(p.Total)
			log.Info("downloading the model", "file", p.File, "done", done)
			told(done)
		}
	})
	if err != nil {
		return err
	}
	cfg.Model = m.Path
	if cfg.ModelID == "" {
		cfg.ModelID = m.Name
	}
	return nil
}

// Intervals between two states of a download that are told.
const (
	pullBarInterval  = 200 * time.Millisecond
	pullLineInterval = 5 * time.Second
)

// ticker says when it is time to tell again.
type ticker struct {
	interval time.Duration
	last     time.Time
}

func newTicker(interval time.Duration) *ticker { return &ticker{interval: interval} }

func (t *ticker) due(anyway bool) bool {
	now := time.Now()
	if !anyway && now.Sub(t.last) < t.interval {
		return false
	}
	t.last = now
	return true
}

// pullLine shows a download: one line that changes on a terminal, a line now and
// then elsewhere.
type pullLine struct {
	to    io.Writer
	width int // of the terminal; 0 elsewhere
	every *ticker

	began time.Time
	first int64 // bytes that were there at began
}

func newPullLine(to io.Writer) *pullLine {
	l := &pullLine{to: to, every: newTicker(pullLineInterval)}
	if width, ok := terminal(to); ok {
		l.width, l.every = width, newTicker(pullBarInterval)
	}
	return l
}

// terminal tells whether w is one, and how many columns it has.
func terminal(w io.Writer) (width int, ok bool) {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return 0, false
	}
	const unknown = 80
	if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
		return width, true
	}
	return unknown, true
}

func (l *pullLine) show(p hub.Progress) {
	if l.began.IsZero() {
		l.began, l.first = time.Now(), p.Done
	}
	if !l.every.due(p.Finished) {
		return
	}
	text := pullText(p, p.Done-l.first, time.Since(l.began))
	switch {
	case l.width == 0:
		fmt.Fprintln(l.to, text)
	case p.Finished:
		fmt.Fprintf(l.to, "\r\x1b[K%s\n", shorten(text, l.width-1))
	default:
		fmt.Fprintf(l.to, "\r\x1b[K%s", shorten(text, l.width-1))
	}
}

// pullText is a state of a download in words; came is how many bytes took so long.
func pullText(p hub.Progress, came int64, took time.Duration) string {
	share := 100.0
	if p.Total > 0 {
		share = 100 * float64(p.Done) / float64(p.Total)
	}
	text := fmt.Sprintf("%5.1f %%  %s of %s", share, hub.Bytes(p.Done), hub.Bytes(p.Total))
	if rate := float64(came) / took.Seconds(); came > 0 && took > 0 {
		text += fmt.Sprintf("  %s/s", hub.Bytes(int64(rate)))
		if left := p.Total - p.Done; left > 0 && !p.Finished {
			text += "  " + time.Duration(float64(left)/rate*float64(time.Second)).Round(time.Second).String() + " left"
		}
	}
	if p.Of > 1 {
		text += fmt.Sprintf("  [%d/%d]", p.Index, p.Of)
	}
	return text + "  " + p.File
}

func shorten(text string, width int) string {
	if runes := []rune(text); len(runes) > width {
		return string(runes[:max(0, width)])
	}
	return text
}
