//go:build !linux

package httpd

import "time"

// backlog is not known here.
func (*conn) backlog() (unread int, stalled time.Duration) { return 0, 0 }
