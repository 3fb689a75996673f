package store

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"
)

// grant puts the user, the password and the certificates of a into o, which has
// those of the address. No error quotes a secret.
func (a *Access) grant(o *redis.Options) error {
	if a.User != "" {
		if o.Username != "" {
			return a.errorf("STORE has a user and STORE_user is set: give one of them")
		}
		o.Username = a.User
	}
	if a.PasswordFile != "" {
		if o.Password != "" {
			return a.errorf("STORE has a password and STORE_password_file is set: give one of them")
		}
		password, err := a.readPassword()
		if err != nil {
			return err
		}
		user := o.Username
		o.Password = password
		// Each new connection reads the file, so that a password can be changed while
		// the gateway runs; a file that is away for a moment changes nothing.
		o.CredentialsProvider = func() (string, string) {
			if now, err := a.readPassword(); err == nil {
				return user, now
			}
			return user, password
		}
	}
	if o.Username != "" && o.Password == "" {
		return a.errorf("STORE has a user and no password: add one as redis://USER:PASSWORD@HOST:PORT, or set STORE_password_file")
	}
	return a.secure(o)
}

// errorf is an error about settings; STORE in text stands for Access.Setting.
func (a *Access) errorf(text string) error {
	return errors.New(strings.ReplaceAll(text, "STORE", a.Setting))
}

// passwordMax bounds a file of a password, in bytes.
const passwordMax = 4096

func (a *Access) readPassword() (string, error) {
	text, err := os.ReadFile(a.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("%s_password_file: %w", a.Setting, err)
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" || len(password) > passwordMax || strings.ContainsAny(password, "\r\n") {
		return "", fmt.Errorf("%s_password_file: %s must hold the password alone, on one line of at most %d bytes", a.Setting, a.PasswordFile, passwordMax)
	}
	return password, nil
}

// secure sets up TLS as a says.
func (a *Access) secure(o *redis.Options) error {
	if a.CA == "" && a.Cert == "" && a.Key == "" && a.ServerName == "" {
		return nil
	}
	if o.TLSConfig == nil {
		return a.errorf("STORE_ca, STORE_cert, STORE_key and STORE_server_name are for TLS: begin STORE with rediss://, or remove them")
	}
	if (a.Cert == "") != (a.Key == "") {
		return a.errorf("STORE_cert and STORE_key belong together: set both, or neither")
	}
	if a.ServerName != "" {
		o.TLSConfig.ServerName = a.ServerName
	}
	if a.CA != "" {
		text, err := os.ReadFile(a.CA)
		if err != nil {
			return fmt.Errorf("%s_ca: %w", a.Setting, err)
		}
		o.TLSConfig.RootCAs = x509.NewCertPool()
		if !o.TLSConfig.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("%s_ca: %s has no certificate in PEM", a.Setting, a.CA)
		}
	}
	if a.Cert != "" {
		pair, err := tls.LoadX509KeyPair(a.Cert, a.Key)
		if err != nil {
			return fmt.Errorf("%s_cert and %s_key: %w", a.Setting, a.Setting, err)
		}
		o.TLSConfig.Certificates = []tls.Certificate{pair}
	}
	return nil
}
