package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/forebay-io/forebay/engine"
	"github.com/forebay-io/forebay/engine/hub"
)

// hubConfig reads the environment variables of the Hub's own tools with the same
// meaning, so that both share one cache and one token.
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

// hubToken returns HF_TOKEN, or the token file that a login of the Hub's tools wrote.
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

// firstPath returns the value of the first variable that is set, with ~ and
// variables expanded.
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

// openHub opens the client of the Hub; progress may be nil.
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

// modelPath returns the path of a model: name itself, or, for a reference to the
// Hub, the path of the downloaded model.
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

// fetchModel downloads the model of cfg if that is a reference to the Hub. It sets
// the model's path and the name that clients ask for. told gets the progress.
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
