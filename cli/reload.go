package cli

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/forebay-io/forebay/internal/conf"
)

// liveSettings are the settings, and beginnings of settings, that a reload changes.
// All others are read once, at the start.
var liveSettings = []string{"admission.tenants", "admission.classes", "admission.routes", "admission.default_class", "admission.part_limits", "identity."}

func isLive(key string) bool {
	return slices.ContainsFunc(liveSettings, func(live string) bool {
		return key == live || strings.HasSuffix(live, ".") && strings.HasPrefix(key, live)
	})
}

// hangUp asks for a reload. One that is asked for already is enough.
func (s *settings) hangUp() {
	select {
	case s.hung <- struct{}{}:
	default:
	}
}

// reloadOnHangUp reloads the configuration on each SIGHUP until ctx ends.
func (f *front) reloadOnHangUp(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.settings.hung:
			f.reload()
		}
	}
}

// reload reads the configuration again, and takes its live settings as a whole or
// not at all.
func (f *front) reload() {
	log := f.console.logger(f.cfg.Log, "gateway")
	s := &settings{path: f.settings.path, given: f.settings.given}
	s.schema = conf.Of(&s.Config)
	err := f.console.load(s)
	f.door.mu.Lock()
	defer f.door.mu.Unlock()
	if err != nil {
		f.identity.NotTaken()
	} else {
		err = f.take(s, f.door.policy)
	}
	if err != nil {
		log.Error("SIGHUP: the configuration was not reloaded, what held before goes on holding", "error", err)
		return
	}
	if f.xds != nil {
		f.xds.Again()
	}
	changed, restart := f.settings.compare(s)
	log.Info("SIGHUP: the configuration was reloaded", "changed", changed, "tenants", len(s.Admission.Tenants))
	if len(restart) > 0 {
		log.Warn("SIGHUP: these settings have changed too, and hold only after a restart", "settings", restart)
	}
}

// compare lists the settings in which now differs from s, those that hold at once and
// those that need a restart, and keeps the first for the next comparison.
func (s *settings) compare(now *settings) (changed, restart []string) {
	for _, key := range slices.Sorted(maps.Keys(now.loaded)) {
		switch {
		case now.loaded[key] == s.loaded[key]:
		case isLive(key):
			changed = append(changed, key)
			s.loaded[key] = now.loaded[key]
		default:
			restart = append(restart, key)
		}
	}
	return changed, restart
}
