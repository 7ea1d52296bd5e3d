"""The database: connection, tables, repositories, migrations."""
