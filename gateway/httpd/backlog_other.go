//go:build !linux

package httpd

import "time"

// backlog is not known here.
func (*conn) backlog() (unread int, stalled time.Duration) { return 0, 0 }

// established is what is known here.
func (c *conn) established() bool { return !c.closed.Load() }
