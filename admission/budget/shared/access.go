package shared

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/forebay-io/forebay/admission/budget"
)

// grant puts the user, the password and the certificates of cfg into o, which has
// those of the address. No error quotes a secret.
func grant(o *redis.Options, cfg *budget.Config) error {
	if cfg.StoreUser != "" {
		if o.Username != "" {
			return errors.New("budget.store has a user and budget.store_user is set: give one of them")
		}
		o.Username = cfg.StoreUser
	}
	if cfg.StorePasswordFile != "" {
		if o.Password != "" {
			return errors.New("budget.store has a password and budget.store_password_file is set: give one of them")
		}
		password, err := readPassword(cfg.StorePasswordFile)
		if err != nil {
			return err
		}
		user := o.Username
		o.Password = password
		// Each new connection reads the file, so that a password can be changed while
		// the gateway runs; a file that is away for a moment changes nothing.
		o.CredentialsProvider = func() (string, string) {
			if now, err := readPassword(cfg.StorePasswordFile); err == nil {
				return user, now
			}
			return user, password
		}
	}
	if o.Username != "" && o.Password == "" {
		return errors.New("budget.store has a user and no password: add one as redis://USER:PASSWORD@HOST:PORT, or set budget.store_password_file")
	}
	return secure(o, cfg)
}

// passwordMax bounds a file of a password, in bytes.
const passwordMax = 4096

func readPassword(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("budget.store_password_file: %w", err)
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" || len(password) > passwordMax || strings.ContainsAny(password, "\r\n") {
		return "", fmt.Errorf("budget.store_password_file: %s must hold the password alone, on one line of at most %d bytes", path, passwordMax)
	}
	return password, nil
}

// secure sets up TLS as cfg says.
func secure(o *redis.Options, cfg *budget.Config) error {
	if cfg.StoreCA == "" && cfg.StoreCert == "" && cfg.StoreKey == "" && cfg.StoreServerName == "" {
		return nil
	}
	if o.TLSConfig == nil {
		return errors.New("budget.store_ca, store_cert, store_key and store_server_name are for TLS: begin budget.store with rediss://, or remove them")
	}
	if (cfg.StoreCert == "") != (cfg.StoreKey == "") {
		return errors.New("budget.store_cert and budget.store_key belong together: set both, or neither")
	}
	if cfg.StoreServerName != "" {
		o.TLSConfig.ServerName = cfg.StoreServerName
	}
	if cfg.StoreCA != "" {
		text, err := os.ReadFile(cfg.StoreCA)
		if err != nil {
			return fmt.Errorf("budget.store_ca: %w", err)
		}
		o.TLSConfig.RootCAs = x509.NewCertPool()
		if !o.TLSConfig.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("budget.store_ca: %s has no certificate in PEM", cfg.StoreCA)
		}
	}
	if cfg.StoreCert != "" {
		pair, err := tls.LoadX509KeyPair(cfg.StoreCert, cfg.StoreKey)
		if err != nil {
			return fmt.Errorf("budget.store_cert and budget.store_key: %w", err)
		}
		o.TLSConfig.Certificates = []tls.Certificate{pair}
	}
	return nil
}
