package wire_test

import (
	"testing"

	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

func TestClientConforms(t *testing.T) {
	suite := wiretest.FakeSuite()
	suite.BufferMax += 16
	suite.LongTokens += 100
	suite.Close = func(e wire.Engine) { e.(*wire.Client).Close() }
	wiretest.Run(t, func(t *testing.T) wire.Engine {
		noNewGoroutines(t)
		fake := wiretest.NewFakeWith(wiretest.FakeSuiteConfig())
		t.Cleanup(func() { fake.Close() })
		path := socketPath(t)
		serve(t, path, fake, wire.ServerConfig{})
		return connect(t, wire.Config{Path: path, WindowEvents: 16})
	}, suite)
}
